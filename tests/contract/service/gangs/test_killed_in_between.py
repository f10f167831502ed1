"""The stories of gangs, with a scheduler that is killed after every step of theirs."""

from unit.workloads.test_gangs import (
    test_a_lost_worker_ends_all_and_all_start_again_from_the_next_attempt,
    test_a_preempted_gang_of_which_one_was_done_comes_back_whole,
    test_a_worker_lost_with_its_node_is_no_failure,
    test_an_elastic_gang_grows_shrinks_and_grows_under_fresh_ids,
    test_members_are_told_where_they_meet,
    test_nothing_starts_until_all_fit_and_then_all_do,
    test_protected_elastic_work_protects_its_minimum_only,
    test_t4_one_task_gets_idle_gpus_and_gives_them_back,
    test_the_first_to_be_done_leaves_its_room_and_the_others_go_on,
    test_two_shares_of_one_gpu_are_told_what_is_theirs,
    test_when_a_worker_fails_after_others_were_done_all_come_again,
    test_when_the_first_of_an_mpi_gang_is_done_the_gang_is,
)

__all__ = [
    "test_a_lost_worker_ends_all_and_all_start_again_from_the_next_attempt",
    "test_a_preempted_gang_of_which_one_was_done_comes_back_whole",
    "test_a_worker_lost_with_its_node_is_no_failure",
    "test_an_elastic_gang_grows_shrinks_and_grows_under_fresh_ids",
    "test_members_are_told_where_they_meet",
    "test_nothing_starts_until_all_fit_and_then_all_do",
    "test_protected_elastic_work_protects_its_minimum_only",
    "test_t4_one_task_gets_idle_gpus_and_gives_them_back",
    "test_the_first_to_be_done_leaves_its_room_and_the_others_go_on",
    "test_two_shares_of_one_gpu_are_told_what_is_theirs",
    "test_when_a_worker_fails_after_others_were_done_all_come_again",
    "test_when_the_first_of_an_mpi_gang_is_done_the_gang_is",
]
