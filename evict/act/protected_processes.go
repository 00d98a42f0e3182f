package act

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// checkProtectedProcesses refuses cgroups that contain processes that evict must never touch: PID 1, evict itself, evict's ancestors,
// and the leader of its process group, which is the pipe's first stage or the script that runs the pipe.
func checkProtectedProcesses(cgroup string, pids []int) error {
	if cgroup == "/" {
		return fmt.Errorf("%w: / is the whole machine", ErrRefused)
	}
	protected := map[int]string{1: "the init process", os.Getpid(): "evict itself", unix.Getpgrp(): "the leader of evict's process group"}
	for pid := os.Getppid(); pid > 1; {
		if protected[pid] == "" {
			protected[pid] = "an ancestor of evict"
		}
		parent, err := parentOf(pid)
		if err != nil {
			break // it has ended, or /proc hides it: its parents cannot be found
		}
		pid = parent
	}
	for _, pid := range pids {
		if pid <= 0 {
			return fmt.Errorf("%w: %s contains processes of another PID namespace, which get no signals from here (run evict in the host's PID namespace)", ErrRefused, cgroup)
		}
		if description := protected[pid]; description != "" {
			return fmt.Errorf("%w: %s contains process %d, %s", ErrRefused, cgroup, pid, description)
		}
	}
	return nil
}

// parentOf reads the fourth field of /proc/PID/stat (proc(5)); the second one, in parentheses, may contain any character.
func parentOf(pid int) (int, error) {
	data, err := kernfile.Read("/proc/"+strconv.Itoa(pid)+"/stat", nil)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("parse /proc/%d/stat: too few fields in %q", pid, data)
	}
	return strconv.Atoi(fields[1])
}
