"""Which pods there are, and to which team and slot each belongs."""

from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.teams import Slot, Team
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping


class GuestBook:
    """All guests. Only indexes: what the core is told follows in ``settling``.

    Attributes:
        teams: by the core's uid.
        homeless: members whose project is not known, by project and uid of the pod.
        buried: pods that count as gone although the cluster still shows them.
        touched: teams to be settled.
    """

    def __init__(self) -> None:
        self.teams: dict[str, Team] = {}
        self.homeless: dict[str, dict[str, Member]] = {}
        self.buried: set[str] = set()
        self.touched: dict[str, Team] = {}
        self._homes: dict[str, tuple[Team, Slot]] = {}
        self._gangs: dict[tuple[str, str, str], Team] = {}
        self._vacant: dict[str, dict[str, Team]] = {}
        self._loose: dict[str, dict[str, Team]] = {}

    def home(self, pod_uid: str) -> tuple[Team, Slot] | None:
        """The team and slot of a pod."""
        return self._homes.get(pod_uid)

    def touch(self, team: Team) -> None:
        """Have a team settled in this turn."""
        self.touched[team.uid] = team

    def arrive(self, member: Member) -> tuple[Team, Slot]:
        """Give a new pod its slot."""
        grouping = member.grouping
        team, slot = self._gang_slot(member) if grouping.is_gang else self._loose_slot(member)
        slot.member, slot.vacant_until = member, None
        slot.sent = slot.evicted = False
        self._homes[member.ref.uid] = (team, slot)
        self.touch(team)
        return team, slot

    def see(self, member: Member) -> tuple[Team, Slot]:
        """A pod that has a slot looks different now."""
        team, slot = self._homes[member.ref.uid]
        slot.member = member
        self.touch(team)
        return team, slot

    def lose(self, pod_uid: str) -> tuple[Team, Slot] | None:
        """A pod is no more; its slot stays."""
        home = self._homes.pop(pod_uid, None)
        if home is not None:
            home[1].member = None
            home[1].sent = False
            self.touch(home[0])
        return home

    def vacate(self, team: Team, slot: Slot, until: float) -> None:
        """The next pod of this slot is awaited."""
        slot.vacant_until = until
        if team.loose:
            self._vacant.setdefault(team.grouping.uid, {})[team.uid] = team

    def succeed(self, team: Team, slot: Slot) -> bool:
        """Let a pod that came before this slot was free have it; returns whether there is one."""
        for other in self._loose.get(team.grouping.uid, {}).values():
            waiting = other.slots[0]
            one = waiting.member
            if other is team or one is None or one.node or waiting.place or waiting.sent:
                continue
            if one.ending or one.outcome is not None or waiting.role != slot.role:
                continue
            if _belongs_to(other.grouping) != _belongs_to(team.grouping):
                continue
            self.touch(other)
            self.close(other, waiting)
            self._homes[one.ref.uid] = (team, slot)
            slot.member, slot.vacant_until, slot.sent = one, None, False
            return True
        return False

    def close(self, team: Team, slot: Slot) -> None:
        """A slot is not wanted any more."""
        if slot.member is not None:
            self._homes.pop(slot.member.ref.uid, None)
        team.slots.remove(slot)
        self._no_longer_vacant(team)
        if not team.slots:
            self.teams.pop(team.uid, None)
            self._no_longer_loose(team)
            if self._gangs.get(_belongs_to(team.grouping)) is team:
                del self._gangs[_belongs_to(team.grouping)]

    def part_from_gang(self, team: Team, slot: Slot, until: float) -> tuple[Team, Slot] | None:
        """Let the pod of a slot go by itself; the slot waits for another one."""
        member = slot.member
        if member is None:
            return None
        self.lose(member.ref.uid)
        self.vacate(team, slot, until)
        own, place = self._new_loose(member)
        place.member = member
        self._homes[member.ref.uid] = (own, place)
        self.touch(own)
        return own, place

    def _loose_slot(self, member: Member) -> tuple[Team, Slot]:
        for team in self._vacant.get(member.grouping.uid, {}).values():
            if team.grouping == member.grouping and team.slots[0].role == member.role:
                self._no_longer_vacant(team)
                return team, team.slots[0]
        return self._new_loose(member)

    def _new_loose(self, member: Member) -> tuple[Team, Slot]:
        slot = Slot(member.role)
        team = self.teams[member.ref.uid] = Team(
            member.ref.uid, member.grouping, loose=True, slots=[slot]
        )
        self._loose.setdefault(member.grouping.uid, {})[team.uid] = team
        return team, slot

    def _gang_slot(self, member: Member) -> tuple[Team, Slot]:
        """A slot that waits for a pod of its role, or a new one; late pods go by themselves."""
        team = self._gangs.get(_belongs_to(member.grouping))
        if team is None:
            team = self._new_gang(member.grouping)
        for slot in team.slots:
            if slot.member is None and slot.role == member.role and not slot.done:
                return team, slot
        if team.holding:
            return self._new_loose(member)
        slot = Slot(member.role)
        team.slots.append(slot)
        team.grouping = member.grouping
        team.reshaped = True
        return team, slot

    def _new_gang(self, grouping: Grouping) -> Team:
        uid = f"{grouping.uid}-gang"
        if uid in self.teams:
            uid = f"{'-'.join(_belongs_to(grouping))}-gang"
        team = self._gangs[_belongs_to(grouping)] = Team(uid, grouping, loose=False)
        self.teams[uid] = team
        return team

    def _no_longer_loose(self, team: Team) -> None:
        siblings = self._loose.get(team.grouping.uid)
        if siblings is not None:
            siblings.pop(team.uid, None)
            if not siblings:
                del self._loose[team.grouping.uid]

    def _no_longer_vacant(self, team: Team) -> None:
        waiting = self._vacant.get(team.grouping.uid)
        if waiting is not None:
            waiting.pop(team.uid, None)
            if not waiting:
                del self._vacant[team.grouping.uid]


def _belongs_to(grouping: Grouping) -> tuple[str, str, str]:
    """Whose gang it is: pods that name a group of another project or user are another gang."""
    return grouping.uid, grouping.project, grouping.user
