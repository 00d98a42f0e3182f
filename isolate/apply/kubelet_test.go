package apply

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/cpumanager"
	"polder/lib/tick"
)

// kubeletDir is a kubelet's root directory with its CPU manager's state, replaced as kubelet does.
type kubeletDir struct {
	t   testing.TB
	dir string
}

func newKubeletDir(t testing.TB, state string) *kubeletDir {
	k := &kubeletDir{t: t, dir: t.TempDir()}
	k.put(state)
	return k
}

func (k *kubeletDir) put(state string) {
	k.t.Helper()
	path := filepath.Join(k.dir, cpumanager.File)
	if err := os.WriteFile(path+".new", []byte(state), 0o600); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		k.t.Fatal(err)
	}
}

// reader returns the reader for [Options].
func (k *kubeletDir) reader(o *Options) { o.Kubelet = cpumanager.NewReader(k.dir) }

const (
	policyNone   = `{"policyName":"none","defaultCpuSet":""}`
	policyStatic = `{"policyName":"static","defaultCpuSet":"0-1"}`
	// assignedOne assigns CPU 1 to the container web of pod a; side shares the pod.
	assignedOne = `{"policyName":"static","defaultCpuSet":"0","entries":{"a":{"web":"1"}}}`
)

// lists advises CPU lists by cgroup.
func (r *realTree) lists(of ...string) []tick.Cgroup {
	var out []tick.Cgroup
	for i := 0; i < len(of); i += 2 {
		out = append(out, tick.Cgroup{Cgroup: r.path(of[i]), CPUSetCPUs: of[i+1]})
	}
	return out
}

func (r *realTree) cpus(name string) string { return r.get("cpuset", name, "cpuset.cpus") }

func wantOneError(t *testing.T, out tick.Isolation, want string) {
	t.Helper()
	if problems := errorsOf(out); strings.Count(problems, want) != 1 {
		t.Errorf("reported errors: want %q once:\n%s", want, problems)
	}
}

// A cgroup above kubelet's root is not narrowed under its static policy; one above a user's cgroup of that name is.
func TestACgroupNamedLikeKubeletsHoldsNothing(t *testing.T) {
	r := newRealTree(t, "node", "node/kubepods", "batch", "batch/kubepods")
	if err := os.Chown(r.dir("cpuset", "batch/kubepods"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	a, _ := newApplier(t, r.h, newKubeletDir(t, assignedOne).reader)
	out := a.Apply(r.lists("node", "0", "batch", "0"))
	wantOneError(t, out, "node cpusetCPUs: not written: kubelet")
	if node, batch := r.cpus("node"), r.cpus("batch"); node != "0-1" || batch != "0" || len(out.Errors) != 1 {
		t.Errorf("node on %s, batch on %s, errors:\n%s", node, batch, errorsOf(out))
	}
}

// A cgroup in which kubelet creates its root only after isolate has read its state, as after a boot, and has narrowed the cgroup, is
// widened again; once the root is removed, it is narrowed.
func TestKubeletsRootAppearsLater(t *testing.T) {
	r := newRealTree(t, "node")
	a, _ := newApplier(t, r.h, newKubeletDir(t, policyStatic).reader)
	apply := func(want string) {
		t.Helper()
		var out tick.Isolation
		for range rootSearchInterval {
			out = a.Apply(r.lists("node", "0"))
		}
		if got := r.cpus("node"); got != want {
			t.Errorf("node on %s, want %s; errors:\n%s", got, want, errorsOf(out))
		}
	}
	apply("0")
	if err := r.make("node/kubepods"); err != nil {
		t.Fatal(err)
	}
	apply("0-1")
	if got := r.cpus("node/kubepods"); got != "0-1" {
		t.Errorf("kubepods on %s, want 0-1", got)
	}
	if err := os.Remove(r.dir("cpuset", "node/kubepods")); err != nil {
		t.Fatal(err)
	}
	apply("0")
}

// CPUs that kubelet assigned are not changed, whatever is advised; a dry run reports the same and writes nothing.
func TestExclusiveCPUsAreKept(t *testing.T) {
	for _, dry := range []bool{true, false} {
		r := newRealTree(t, "kubepods", "kubepods/poda", "kubepods/poda/web", "kubepods/poda/side", "kubepods/podb", "kubepods/podb/c", "serve", "all")
		r.set("cpuset", "kubepods/poda/web", "cpuset.cpus", "1")
		r.set("cpuset", "kubepods/poda/side", "cpuset.cpus", "0")
		k := newKubeletDir(t, assignedOne)
		a, w := newApplier(t, r.h, func(o *Options) { k.reader(o); o.DryRun = dry })
		out := a.Apply(r.lists("kubepods/poda/web", "0", "kubepods/poda/side", "0", "kubepods/podb/c", "0-1", "serve", "0-1", "all", "1"))
		if len(out.Writes) != 2 || dry == (w.writes > 0) {
			t.Errorf("dry run %v: %d writes done, listed %v; want podb/c and serve", dry, w.writes, out.Writes)
		}
		wantOneError(t, out, "web cpusetCPUs: not written: kubelet assigned CPUs 1 exclusively to this container")
		wantOneError(t, out, "CPUs 1 left out: kubelet assigned them exclusively to containers")
		wantOneError(t, out, "all cpusetCPUs: not written: kubelet assigned all of CPUs 1 exclusively to containers")
		for name, want := range map[string]string{
			"kubepods/poda/web": "1", "kubepods/poda/side": "0", "kubepods": "0-1", "kubepods/poda": "0-1", "all": "0-1",
		} {
			if got := r.cpus(name); got != want {
				t.Errorf("dry run %v: %s on %s, want %s", dry, name, got, want)
			}
		}
		if want := map[bool]string{true: "0-1", false: "0"}[dry]; r.cpus("kubepods/podb/c") != want || r.cpus("serve") != want {
			t.Errorf("dry run %v: podb/c on %s, serve on %s, want %s", dry, r.cpus("kubepods/podb/c"), r.cpus("serve"), want)
		}
	}
}

// What kubelet assigns or releases while isolate runs is respected from the next tick on.
func TestAssignmentWhileRunning(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/podb", "kubepods/podb/c")
	k := newKubeletDir(t, policyStatic)
	a, w := newApplier(t, r.h, k.reader)
	desired := r.lists("kubepods/podb/c", "0-1")
	for round, c := range []struct{ state, want string }{{policyStatic, "0-1"}, {assignedOne, "0"}, {assignedOne, "0"}, {policyStatic, "0-1"}} {
		k.put(c.state)
		out := a.Apply(append([]tick.Cgroup(nil), desired...))
		if got := r.cpus("kubepods/podb/c"); got != c.want {
			t.Errorf("round %d: on %s, want %s; errors:\n%s", round, got, c.want, errorsOf(out))
		}
	}
	if w.writes != 2 {
		t.Errorf("%d writes, want one for each change", w.writes)
	}
}

// While the state cannot be parsed, no cgroup of kubelet is moved, and the services' side continues.
func TestTruncatedKubeletState(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/podb", "kubepods/podb/c", "serve")
	k := newKubeletDir(t, assignedOne[:30])
	a, _ := newApplier(t, r.h, k.reader)
	out := a.Apply(r.lists("kubepods/podb/c", "0", "kubepods/podb", "0", "serve", "0"))
	wantOneError(t, out, "not written, like all of kubelet's cpusets: the CPUs that it assigned exclusively are unknown (read kubelet's CPU manager state "+k.dir)
	if r.cpus("kubepods/podb/c") != "0-1" || r.cpus("serve") != "0" {
		t.Errorf("container on %s, serve on %s; want 0-1 and 0", r.cpus("kubepods/podb/c"), r.cpus("serve"))
	}
	k.put(assignedOne)
	a.Apply(r.lists("serve", "0-1"))
	if err := os.Remove(filepath.Join(k.dir, cpumanager.File)); err != nil {
		t.Fatal(err)
	}
	out = a.Apply(r.lists("kubepods/podb/c", "0", "serve", "0-1"))
	wantOneError(t, out, "it existed before and is gone")
	if r.cpus("serve") != "0" {
		t.Errorf("serve on %s; want it off CPU 1, which was given away as far as is known", r.cpus("serve"))
	}
	k.put(policyNone)
	if out = a.Apply(r.lists("kubepods/podb/c", "0", "serve", "1")); len(out.Errors) > 0 || r.cpus("kubepods/podb/c") != "0" || r.cpus("serve") != "1" {
		t.Errorf("readable again: container on %s, serve on %s, errors:\n%s", r.cpus("kubepods/podb/c"), r.cpus("serve"), errorsOf(out))
	}
}

// A tier that was narrowed under the policy "none" gets its list back when kubelet starts with another policy: its
// next container could not start otherwise. The tier is not changed any more.
func TestTierIsWidenedUnderPolicy(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort", "kubepods/besteffort/podb", "kubepods/besteffort/podb/c")
	k := newKubeletDir(t, policyNone)
	journal := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, journal)
	a, _ := newApplier(t, r.h, func(o *Options) { k.reader(o); o.Journal = j })
	desired := r.lists("kubepods/besteffort", "1")
	if out := a.Apply(desired); len(out.Errors) > 0 || r.cpus("kubepods/besteffort/podb/c") != "1" {
		t.Fatalf("container on %s, errors:\n%s", r.cpus("kubepods/besteffort/podb/c"), errorsOf(out))
	}
	j.Close()
	a.Close()

	// The same after a restart of isolate, from the journal.
	k.put(policyStatic)
	j = openJournal(t, journal)
	a, w := newApplier(t, r.h, func(o *Options) { k.reader(o); o.Journal = j })
	for range 2 {
		out := a.Apply(append([]tick.Cgroup(nil), desired...))
		wantOneError(t, out, `not written: kubelet's CPU manager policy is "static", and on cgroup v1 the next container could not start below a narrowed cgroup`)
	}
	for _, name := range []string{"kubepods/besteffort", "kubepods/besteffort/podb"} {
		if got := r.cpus(name); got != "0-1" {
			t.Errorf("%s on %s, want 0-1", name, got)
		}
	}
	if w.writes > 3 {
		t.Errorf("%d writes, want one a cgroup", w.writes)
	}
	// This is how runc creates kubelet's next container.
	if err := r.make("kubepods/besteffort/podb/next"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir("cpuset", "kubepods/besteffort/podb/next"), "cpuset.cpus"), []byte("0-1"), 0); err != nil {
		t.Errorf("kubelet's next container would not start: %v", err)
	}
}

// Kubelet writes the list of its shared containers again whenever its assignments change. isolate writes its own list
// again each time; this is no contest, however often it happens.
func TestKubeletListIsNoContest(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/podb", "kubepods/podb/c")
	k := newKubeletDir(t, policyStatic)
	a, _ := newApplier(t, r.h, func(o *Options) { k.reader(o); o.Contest = 2 })
	desired := r.lists("kubepods/podb/c", "0")
	a.Apply(desired)
	for round := range 10 {
		r.set("cpuset", "kubepods/podb/c", "cpuset.cpus", "0-1")
		out := a.Apply(desired)
		wantOneError(t, out, "set by kubelet from 0 to its default 0-1")
		if got := r.cpus("kubepods/podb/c"); got != "0" {
			t.Fatalf("round %d: on %s, want 0", round, got)
		}
	}
	// It assigns a CPU, and an earlier write of kubelet arrives after that.
	k.put(assignedOne)
	a.Apply(desired)
	r.set("cpuset", "kubepods/podb/c", "cpuset.cpus", "0-1")
	wantOneError(t, a.Apply(desired), "set by kubelet from 0 to its default 0-1")
}

// The restored list is kubelet's present one: never with a CPU that it assigned since.
func TestRestoreBesideKubelet(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/poda", "kubepods/poda/web", "kubepods/podb", "kubepods/podb/c", "serve")
	k := newKubeletDir(t, policyStatic)
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { k.reader(o); o.Journal = j })
	if out := a.Apply(r.lists("kubepods/podb/c", "0", "serve", "0")); len(out.Errors) > 0 {
		t.Fatal(errorsOf(out))
	}
	restore := func() Restored {
		t.Helper()
		j.Close()
		j = openJournal(t, j.Path())
		b, _ := newApplier(t, r.h, func(o *Options) { k.reader(o); o.Journal = j })
		out, err := b.Restore(false)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	k.put(assignedOne[:30])
	if out := restore(); out.Failed != 1 || out.Values != 1 || r.cpus("serve") != "0-1" || r.cpus("kubepods/podb/c") != "0" {
		t.Errorf("with a torn state: %v, serve on %s, container on %s; want serve back alone", out, r.cpus("serve"), r.cpus("kubepods/podb/c"))
	}
	k.put(assignedOne)
	if out := restore(); out.Failed != 0 || out.Unchanged != 1 || r.cpus("kubepods/podb/c") != "0" {
		t.Errorf("with CPU 1 given away: %v, container on %s; want it left on kubelet's 0", out, r.cpus("kubepods/podb/c"))
	}
	if _, err := os.Stat(j.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
}

// A cgroup that is created between two writes of a plan and prevents its parent from narrowing costs one tick.
func TestCgroupCreatedDuringPlan(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort", "kubepods/besteffort/podb", "kubepods/besteffort/podb/c")
	k := newKubeletDir(t, policyNone)
	a, w := newApplier(t, r.h, k.reader)
	var once sync.Once
	w.after = func() {
		once.Do(func() {
			if err := r.make("kubepods/besteffort/podb/next"); err != nil {
				t.Error(err)
			}
		})
	}
	// The first write is the container's; the next one would narrow the pod, which has another container by then.
	desired := r.lists("kubepods/besteffort", "1")
	out := a.Apply(desired)
	wantOneError(t, out, "device or resource busy (a child cgroup has other CPUs")
	if got := r.cpus("kubepods/besteffort"); got != "0-1" {
		t.Errorf("the tier is on %s, want it as it was", got)
	}
	out = a.Apply(append([]tick.Cgroup(nil), desired...))
	if len(out.Errors) > 0 {
		t.Errorf("the next tick's errors:\n%s", errorsOf(out))
	}
	for _, name := range []string{"", "/podb", "/podb/c", "/podb/next"} {
		if got := r.cpus("kubepods/besteffort" + name); got != "1" {
			t.Errorf("%s on %s, want 1", name, got)
		}
	}
}

// A container is created as runc does it: without CPUs, then with the parent's list as it was read. It would not start if
// the tier were narrowed in between.
func TestNarrowingWaitsForNewContainer(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort", "kubepods/besteffort/podb")
	k := newKubeletDir(t, policyNone)
	a, _ := newApplier(t, r.h, k.reader)
	a.maxChildWait = time.Minute
	dir := r.dir("cpuset", "kubepods/besteffort/podb")
	for round := range 30 {
		narrow := []string{"0", "1"}[round%2]
		a.Apply(r.lists("kubepods/besteffort", "0-1"))
		outcome := make(chan tick.Isolation, 1)
		err := createAsRunc(dir, filepath.Join(dir, fmt.Sprint("c", round)), func() {
			go func() { outcome <- a.Apply(r.lists("kubepods/besteffort", narrow)) }()
			time.Sleep(10 * time.Millisecond) // long enough for a write that does not wait
		})
		if err != nil {
			t.Fatalf("round %d: the container does not start: %v", round, err)
		}
		<-outcome // the pod may not have been narrowed, because the container has both CPUs now: that costs a tick
		if out := a.Apply(r.lists("kubepods/besteffort", narrow)); len(out.Errors) > 0 {
			t.Fatalf("round %d: %s", round, errorsOf(out))
		}
		if got := r.cpus("kubepods/besteffort"); got != narrow {
			t.Fatalf("round %d: the tier is on %s, want %s", round, got, narrow)
		}
	}
}

// A cgroup that never gets a list delays the narrowing of others only briefly.
func TestNarrowingWaitIsBounded(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort", "kubepods/besteffort/podb")
	k := newKubeletDir(t, policyNone)
	a, _ := newApplier(t, r.h, k.reader)
	if err := os.Mkdir(filepath.Join(r.dir("cpuset", "kubepods/besteffort/podb"), "never"), 0o755); err != nil {
		t.Fatal(err)
	}
	a.Apply(r.lists("kubepods/besteffort", "1"))
	if got := r.cpus("kubepods/besteffort"); got != "1" {
		t.Errorf("the tier is on %s, want 1", got)
	}
}

// createAsRunc creates a container's cgroup; between is called after it has read the parent's list and before it writes its own.
func createAsRunc(above, dir string, between func()) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer syscall.Rmdir(dir)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(above, name))
		if err != nil {
			return err
		}
		if name == "cpuset.cpus" {
			between()
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0); err != nil {
			return err
		}
	}
	return nil
}
