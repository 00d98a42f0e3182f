package source

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/collect/loadavg"
	"polder/lib/cgroup"
	"polder/lib/tick"
	"polder/tests/await"
)

// TestFailedWatchIsRetried: a cgroup that could not be watched is watched by the next rescan for which the kernel has room, and only the
// first error is logged until then. A closed watcher refuses every directory, as one at fs.inotify.max_user_watches does.
func TestFailedWatchIsRetried(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/grid/1", "0")
	c := m.collector("rules: [{cgroup: /*/*, class: reclaimed}]")
	var log await.Log
	c.env.Log = slog.New(slog.NewTextHandler(&log, nil))
	logged := func(warnings, resumed int) {
		t.Helper()
		text := log.String()
		w, r := strings.Count(text, "max_user_watches may be too low"), strings.Count(text, "all are watched")
		if w != warnings || r != resumed {
			t.Errorf("logged %d warnings and %d times that watching was resumed; want %d and %d:\n%s", w, r, warnings, resumed, text)
		}
	}
	refuse := func() {
		t.Helper()
		if err := c.env.pods.tree.watcher.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Read(true)
	for i := range 2 {
		top := fmt.Sprintf("/unwatched%d", i)
		m.cgroup(top+"/1", "0")
		refuse()
		c.Read(true)
		c.Read(true)
		logged(i+1, i)
		c.env.pods.tree.watcher = nil // the next one has room
		c.Read(true)
		logged(i+1, i+1)
		m.cgroup(top+"/2", "0")
		await.Until(t, time.Minute, top+"/2 is found without a rescan", await.Is(func() bool {
			c.Read(false)
			return c.env.pods.tree.nodes[top+"/2"] != nil
		}))
	}
}

// TestRecreatedDirectoryIsWatched: if the events of a recreated cgroup are lost, a rescan begins to watch the new one.
func TestRecreatedDirectoryIsWatched(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/grid/1", "0")
	c := m.collector("rules: [{cgroup: /grid/*, class: reclaimed}]")
	c.Read(true)
	tree := c.env.pods.tree
	tree.inodes = true
	c.Read(true)
	watched := tree.nodes["/grid"]
	base := filepath.Join(m.root, "sys/fs/cgroup")
	if err := os.Rename(filepath.Join(base, "grid"), filepath.Join(base, "other")); err != nil { // so that the inode is not used again
		t.Fatal(err)
	}
	m.cgroup("/grid/1", "0")
	await.Until(t, time.Minute, "the removal is lost", await.Is(func() bool {
		return slices.Contains(tree.watcher.Take().Removed, "/grid")
	}))
	c.Read(true)
	if tree.nodes["/grid"] == watched {
		t.Error("the recreated cgroup is the old one's node")
	}
	m.cgroup("/grid/2", "0")
	await.Until(t, time.Minute, "/grid/2 is found without a rescan", await.Is(func() bool {
		c.Read(false)
		return tree.nodes["/grid/2"] != nil
	}))
}

// TestUnreadableContainer: the error of a container that cannot be opened is in each tick once, and its load of an earlier run is absent
// when it is too old, or damaged.
func TestUnreadableContainer(t *testing.T) {
	m := newMachine(t)
	m.write("proc/uptime", "1000 1")
	m.write("sys/fs/cgroup/a/memory.stat", "")
	link := filepath.Join(m.root, "sys/fs/cgroup/a/memory.stat") // links are refused
	if err := errors.Join(os.Remove(link), os.Symlink("/etc/passwd", link)); err != nil {
		t.Fatal(err)
	}
	c := m.collector("rules: [{cgroup: /*, class: reclaimed}]")
	load := loadavg.Average{Load1: 3, Load5: 3, At: asTime(990), Began: asTime(500), Samples: 5}
	damaged := load
	damaged.Load5 = 1e306
	m.cgroup("/b", "0")
	cgroups := map[string]CgroupState{
		"/a": {Seconds: 990, Load: load},
		"/b": {Seconds: 990, Load: damaged, Walk: &pass{Walk: cgroup.Walk{Count: 1 << 60}}},
	}
	if !c.Load(&State{Seconds: 990, Cgroups: cgroups}, 60) {
		t.Fatal("the state is refused")
	}
	for i, want := range []string{"3", "3", "absent"} {
		m.write("proc/uptime", fmt.Sprintf("%d 1", 1000+30*i))
		s := c.Read(i == 0)
		for _, p := range s.Pods {
			want := map[string]string{"/a": want, "/b": "absent"}[p.UID]
			got := "absent"
			if p.Load1 != nil {
				got = fmt.Sprint(*p.Load1)
			}
			if got != want {
				t.Errorf("tick %d: load1 of %s %s; want %s", i, p.UID, got, want)
			}
		}
		errs := slices.DeleteFunc(slices.Clone(s.Errors), func(e tick.SourceError) bool { return e.Source != Cgroup.Name })
		if len(errs) != 1 || !strings.Contains(errs[0].Error, "open cgroup /a: ") {
			t.Errorf("tick %d: errors %+v; want one", i, errs)
		}
	}
}

// TestNewBatch: a cgroup of batch that is created between two rounds matters before the next one where no cgroup above it has its class.
func TestNewBatch(t *testing.T) {
	const rules = `rules:
  - {cgroup: /kubepods/besteffort/pod*, class: reclaimed, containers: children}
  - {cgroup: /batch.slice, class: reclaimed}
  - {cgroup: "/grid/**", class: reclaimed}
  - {cgroup: /mixed/job*, class: reclaimed}
  - {cgroup: /outer/job*, class: reclaimed}
  - {cgroup: /*/*, class: shared}
  - {cgroup: /*, class: shared}
`
	for _, tt := range []struct {
		name, cgroup string
		want         bool
	}{
		{"at the top", "/batch.slice", true},
		{"with the cgroup above it", "/outer/job", true},
		{"beside a service", "/mixed/job2", true},
		{"below batch", "/grid/2", false},
		{"a service", "/web2", false},
		{"kubelet's", "/kubepods/besteffort/pod2", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			for _, existing := range []string{"/grid/1", "/web", "/kubepods/besteffort/pod1/c", "/mixed/service", "/mixed/job1"} {
				m.cgroup(existing, "0")
			}
			c := m.collector(rules)
			c.Read(true)
			if c.HasNewBatch() {
				t.Error("the first round's batch is new in the next one")
			}
			for len(c.Created()) > 0 {
				<-c.Created()
			}
			if err := os.MkdirAll(filepath.Join(m.root, "sys/fs/cgroup", tt.cgroup), 0o755); err != nil {
				t.Fatal(err)
			}
			<-c.Created()
			if got := c.HasNewBatch(); got != tt.want {
				t.Errorf("HasNewBatch = %t; want %t", got, tt.want)
			}
			if c.HasNewBatch() {
				t.Error("batch is new twice")
			}
			if pods := c.Read(false).Pods; !slices.ContainsFunc(pods, func(p tick.Pod) bool { return tick.IsWithin(p.Cgroup, tt.cgroup) }) {
				t.Errorf("the next round has no pod %s: %v", tt.cgroup, pods)
			}
		})
	}
}

// TestErrorsBetweenRounds: what is found between two rounds is reported by the next one, and once.
func TestErrorsBetweenRounds(t *testing.T) {
	m := newMachine(t)
	m.cgroup("/web", "0")
	c := m.collector("rules: [{cgroup: /web, class: shared}, {cgroup: /*, class: reclaimed}]")
	c.Read(true)
	if err := os.Mkdir(filepath.Join(m.root, "sys/fs/cgroup", "job\xff"), 0o755); err != nil {
		t.Fatal(err)
	}
	<-c.Created()
	c.HasNewBatch()
	for _, want := range []int{1, 0} {
		errs := slices.DeleteFunc(c.Read(false).Errors, func(e tick.SourceError) bool { return e.Source != "cgroup" })
		if len(errs) != want {
			t.Errorf("errors %v; want %d", errs, want)
		}
	}
}
