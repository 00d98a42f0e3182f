package cgroup

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The CPUs of each partition are known, also those of nested partitions, and of partitions below members with exclusive CPUs. An
// invalid partition has none. A new one is found as soon as the effective list around it is shorter.
func TestPartitions(t *testing.T) {
	h, base := copyOfV2(t)
	put(t, base+"/cgroup.controllers", "cpuset cpu memory\n")
	h, err := Detect(h.root)
	if err != nil {
		t.Fatal(err)
	}
	set := func(cgroup, state, exclusive, effective string) {
		put(t, base+cgroup+"/cpuset.cpus.partition", state+"\n")
		put(t, base+cgroup+"/cpuset.cpus.exclusive", exclusive+"\n")
		put(t, base+cgroup+"/cpuset.cpus.effective", effective+"\n")
	}
	put(t, base+"/cpuset.cpus.effective", "0-1,12-15\n")
	set("/member", "member", "", "0-1,12-15")
	set("/member/none", "root", "", "0") // not possible below a member without exclusive CPUs
	set("/remote", "member", "8-9", "0-1")
	set("/remote/below", "isolated", "8", "8")
	set("/own", "root", "", "2-3")
	set("/own/in", "isolated", "", "4-5")
	set("/own/in/it", "root", "", "6")
	set("/own/member", "member", "", "2-3")
	set("/broken", "root invalid (Cpu list in cpuset.cpus not exclusive)", "", "0-1,12-15")
	put(t, base+"/bare/cgroup.procs", "")
	put(t, base+"/old/cpuset.cpus.partition", "member\n") // of a kernel without cpuset.cpus.exclusive
	put(t, base+"/old/part/cpuset.cpus.partition", "root\n")
	put(t, base+"/old/part/cpuset.cpus", "10-11\n")

	p := NewPartitions(h)
	expect := func(all bool, want ...string) {
		t.Helper()
		list, err := p.Read(all)
		var got []string
		for _, part := range list {
			got = append(got, fmt.Sprint(part.Cgroup, " ", part.CPUs))
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("partitions (-want +got), %v:\n%s", err, diff)
		}
	}
	first := []string{"/old/part 10-11", "/own 2-6", "/own/in 4-6", "/own/in/it 6", "/remote/below 8"}
	expect(false, first...)
	set("/new", "root", "", "12")
	expect(false, first...) // no file shows it
	put(t, base+"/cpuset.cpus.effective", "0-1,13-15\n")
	expect(false, append([]string{"/new 12"}, first...)...)
	if err := os.RemoveAll(base + "/own/in"); err != nil {
		t.Fatal(err)
	}
	put(t, base+"/own/cpuset.cpus.effective", "2-6\n")
	expect(false, "/new 12", "/old/part 10-11", "/own 2-6", "/remote/below 8")
	set("/own", "member", "", "2-6")
	expect(true, "/new 12", "/old/part 10-11", "/remote/below 8")
}
