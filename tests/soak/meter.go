package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// sample is the state at one time.
type sample struct {
	AtSecs  float64 // since the start of the pipe
	Tools   map[string]use
	Cgroups int64 // that the load has
	Made    int64 // cgroups so far
	Removed int64
	Ticks   int64 // that have come out of the pipe so far
	Pods    int   // in the latest tick that was decoded
	AgeSecs float64
	Bytes   int // of that tick
	State   int64
	Logs    int64
	Load1   float64 // the machine's load average: other programs may run on it
}

// use is a tool's usage.
type use struct {
	RSSMiB       float64
	AnonymousMiB float64 // of it: heap and stacks, not the program's file
	Descriptors  int
	CPUPercent   float64 // of a core, since the sample before
	cpu          time.Duration
}

// meter reads the tools' use from /proc.
type meter struct {
	p       *pipe
	begun   time.Time
	before  time.Time
	cpuThen map[string]time.Duration
}

func newMeter(p *pipe) *meter {
	now := time.Now()
	m := &meter{p: p, begun: now, before: now, cpuThen: map[string]time.Duration{}}
	for tool, cmd := range p.cmds {
		m.cpuThen[tool], _ = readCPU(cmd.Process.Pid)
	}
	return m
}

func (m *meter) elapsed() time.Duration { return time.Since(m.begun) }

func (m *meter) sample(l *load) (sample, error) {
	now := time.Now()
	s := sample{AtSecs: now.Sub(m.begun).Seconds(), Tools: map[string]use{}}
	for tool, cmd := range m.p.cmds {
		u, err := readUse(cmd.Process.Pid)
		if err != nil {
			return s, fmt.Errorf("%s: %w", tool, err)
		}
		u.CPUPercent = 100 * float64(u.cpu-m.cpuThen[tool]) / float64(now.Sub(m.before))
		s.Tools[tool] = u
	}
	for tool, u := range s.Tools {
		m.cpuThen[tool] = u.cpu
	}
	m.before = now
	s.Cgroups, s.Made, s.Removed = l.alive.Load(), l.made.Load(), l.removed.Load()
	s.Ticks = m.p.ticks.Load()
	if tick := m.p.last.Load(); tick != nil {
		s.Pods, s.AgeSecs, s.Bytes = tick.pods, tick.age.Seconds(), tick.length
	}
	s.State, s.Logs = m.p.diskBytes()
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(data), &s.Load1)
	}
	return s, nil
}

func readUse(pid int) (u use, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return u, err
	}
	if u.RSSMiB, err = statusMiB(string(status), "VmRSS:"); err != nil {
		return u, err
	}
	if u.AnonymousMiB, err = statusMiB(string(status), "RssAnon:"); err != nil {
		return u, err
	}
	if u.cpu, err = readCPU(pid); err != nil {
		return u, err
	}
	fds, err := os.Open(dir + "/fd")
	if err != nil {
		return u, err
	}
	defer fds.Close()
	names, err := fds.Readdirnames(-1)
	u.Descriptors = len(names)
	return u, err
}

// statusMiB is a value of /proc/PID/status that has the unit kB.
func statusMiB(status, key string) (float64, error) {
	_, rest, found := strings.Cut(status, "\n"+key)
	fields := strings.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, errors.New("no " + key + " in status: the process has ended")
	}
	kib, err := strconv.ParseFloat(fields[0], 64)
	return kib / 1024, err
}

// readCPU is the time that a process has used so far, of all its threads.
func readCPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return statCPU(string(data))
}

// clockTick is the unit of /proc/PID/stat: USER_HZ, 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

func statCPU(stat string) (time.Duration, error) {
	rest := stat[strings.LastIndexByte(stat, ')')+1:] // a name may have blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errors.New("stat is too short")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}
