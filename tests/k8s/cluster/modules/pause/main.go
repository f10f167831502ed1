// What holds a pod's namespaces open: it waits until it is told to end. Where the containers of a
// pod share their processes it is the first of them, and the kernel buries the orphans for it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGCHLD)
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	<-told
}
