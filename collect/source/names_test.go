package source

import (
	"slices"
	"strings"
	"testing"
)

// A cgroup whose name a tick cannot have is no pod, and is reported, quoted.
func TestNamesThatATickCannotHave(t *testing.T) {
	m := newMachine(t)
	m.version(2)
	for _, name := range []string{"a", "b\xff", "c\tx", "d e"} {
		m.write("sys/fs/cgroup/batch/"+name+"/cgroup.procs", "")
	}
	s := m.collector("rules: [{cgroup: /batch/*, class: reclaimed}]\n").Read(true)
	var pods []string
	for i := range s.Pods {
		pods = append(pods, s.Pods[i].Cgroup)
	}
	if want := []string{"/batch/a", "/batch/d e"}; !slices.Equal(pods, want) {
		t.Errorf("pods %q; want %q", pods, want)
	}
	text := ""
	for _, e := range s.Errors {
		text += e.Error + "\n"
	}
	for _, want := range []string{`"/batch/b\xff" is left out`, `"/batch/c\tx" is left out`} {
		if !strings.Contains(text, want) {
			t.Errorf("errors %q; want %q", text, want)
		}
	}
}

// Cgroups that match the same rule within each other are one pod, because the use of the outer one contains that of the inner ones. Another
// rule's are pods of their own.
func TestNestedMatches(t *testing.T) {
	m := newMachine(t)
	m.version(2)
	for _, path := range []string{"/batch/job/worker", "/batch/job/web"} {
		m.write("sys/fs/cgroup"+path+"/cgroup.procs", "")
	}
	s := m.collector("rules: [{cgroup: /batch/**/web, class: shared}, {cgroup: /batch/**, class: reclaimed}]\n").Read(true)
	var pods []string
	for i := range s.Pods {
		pods = append(pods, s.Pods[i].Cgroup+" "+s.Pods[i].QoS)
	}
	slices.Sort(pods)
	if want := []string{"/batch reclaimed", "/batch/job/web shared"}; !slices.Equal(pods, want) {
		t.Errorf("pods %q; want %q", pods, want)
	}
}
