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
			t.Errorf("reported %q; want %q", text, want)
		}
	}
}
