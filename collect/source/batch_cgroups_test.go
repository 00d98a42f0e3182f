package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestBatchCgroups: a cgroup above reclaimed pods is named while it holds nothing else, no process, no other cgroup and no other pod.
func TestBatchCgroups(t *testing.T) {
	const rules = `rules:
  - {cgroup: /grid/jobs/web*, class: shared}
  - {cgroup: /grid/jobs/*, class: reclaimed}
  - {cgroup: /alone, class: reclaimed}
  - {cgroup: /empty/*, class: reclaimed}
  - {cgroup: /kubepods/besteffort/pod*, class: reclaimed, containers: children}
`
	for _, version := range []int{1, 2} {
		m := newMachine(t)
		m.version(version)
		at := "sys/fs/cgroup"
		if version == 1 {
			m.cgroup("/cpuacct/.", "0") // the hierarchy in which cgroups are looked for
			at += "/cpu"
		}
		group := func(path string) {
			if version == 1 {
				m.write("sys/fs/cgroup/cpuacct"+path+"/cpuacct.usage", "0\n")
			}
			m.write(at+path+"/cgroup.procs", "")
		}
		for _, path := range []string{"", "/grid", "/grid/jobs", "/grid/jobs/1", "/grid/jobs/2", "/alone", "/empty", "/kubepods", "/kubepods/besteffort", "/kubepods/besteffort/pod1", "/kubepods/besteffort/pod1/c"} {
			group(path)
		}
		c := m.collector(rules)
		want := func(what string, list ...string) {
			t.Helper()
			if diff := cmp.Diff(list, c.Read(true).BatchCgroups, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("version %d, %s (-want +got):\n%s", version, what, diff)
			}
		}
		without := func(path string) {
			for _, hierarchy := range []string{at, "sys/fs/cgroup/cpuacct"} {
				if err := os.RemoveAll(filepath.Join(m.root, hierarchy+path)); err != nil {
					t.Fatal(err)
				}
			}
		}
		want("two jobs", "/grid", "/grid/jobs")
		m.write(at+"/grid/cgroup.procs", "17\n")
		want("a process in the outer cgroup", "/grid/jobs")
		m.write(at+"/grid/cgroup.procs", "")
		group("/grid/jobs/web1")
		want("a service among the jobs")
		without("/grid/jobs/web1")
		want("the service has gone", "/grid", "/grid/jobs")
		for _, name := range []string{"/grid/jobs/odd\xff", "/grid/jobs/odd\tname"} {
			group(name)
			want("a job whose name a tick cannot have", "/grid", "/grid/jobs")
			without(name)
		}
		group("/grid/other")
		want("a cgroup that no rule matches", "/grid/jobs")
		without("/grid/other")
		if version == 1 {
			m.write(at+"/grid/jobs/unseen/cgroup.procs", "")
			want("a cgroup of the cpu hierarchy alone")
			without("/grid/jobs/unseen")

			m.pidNamespace("pid:[4026532178]")
			c = m.collector(rules)
			want("no counters in another PID namespace: unlisted processes may be anywhere")
			m.write("sys/fs/cgroup/pids/cgroup.procs", "")
			for path, tasks := range map[string]string{"": "4", "/jobs": "3", "/jobs/1": "1", "/jobs/2": "2"} {
				m.write("sys/fs/cgroup/pids/grid"+path+"/pids.current", tasks+"\n")
			}
			c = m.collector(rules)
			want("an unlisted process in the outer cgroup", "/grid/jobs")
			m.write("sys/fs/cgroup/pids/grid/pids.current", "3\n")
			want("no unlisted process", "/grid", "/grid/jobs")
		}
		without("/grid/jobs/1")
		want("one job", "/grid", "/grid/jobs")
		without("/grid/jobs/2")
		want("no job any more")
	}
}
