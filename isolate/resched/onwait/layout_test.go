package onwait

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

var word = &btf.Int{Name: "unsigned int", Size: 4}

// structure is a type with fields of 4 bytes each, the first of which is at byte start.
func structure(name string, start uint32, fields ...string) *btf.Struct {
	s := &btf.Struct{Name: name}
	for i, field := range fields {
		s.Members = append(s.Members, btf.Member{Name: field, Type: word, Offset: btf.Bits(8 * (start + 4*uint32(i)))})
	}
	s.Size = start + 4*uint32(len(fields))
	return s
}

// earlyLinux612 stands for a count that no kernel has.
const earlyLinux612 = "none"

// kernel describes the types of a kernel: the counts of a queue have the names of its version, and the queue of a CPU is at a place.
func kernel(t *testing.T, cpuQueue uint32, counts ...string) *btf.Spec {
	t.Helper()
	entity := structure("sched_entity", 8, "parent", "cfs_rq")
	if slices.Contains(counts, earlyLinux612) {
		entity = structure("sched_entity", 8, "parent", "cfs_rq", "sched_delayed")
	}
	task := structure("task_struct", 16, "pid")
	task.Members = append(task.Members, btf.Member{Name: "se", Type: &btf.Typedef{Name: "se_t", Type: entity}, Offset: 8 * 100})
	task.Size = 100 + entity.Size
	queue := structure("cfs_rq", 0, append([]string{"idle", "rq"}, counts...)...)
	member := btf.Member{Name: "cfs", Type: queue, Offset: btf.Bits(8 * cpuQueue)}
	cpu := &btf.Struct{Name: "rq", Size: cpuQueue + queue.Size, Members: []btf.Member{member}}
	b, err := btf.NewBuilder([]btf.Type{task, cpu}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// The fields' names and places differ between kernels, also within one version.
func TestLayout(t *testing.T) {
	same := layout{
		taskPID: 16, taskParent: 108, taskQueue: 112, entityParent: 8, entityQueue: 12, queueCPU: 4, queueIsIdle: 0, cpuQueue: 64,
	}
	for name, c := range map[string]struct {
		counts                          []string
		queued, idle, runnable, delayed int16
	}{
		"Linux 5.15": {[]string{"h_nr_running", "idle_h_nr_running"}, 8, 12, missing, missing},
		"Linux 6.12": {[]string{"h_nr_running", "idle_nr_running", "idle_h_nr_running", "h_nr_delayed"}, 8, 16, missing, 20},
		"Linux 6.14": {[]string{"h_nr_queued", "h_nr_runnable", "h_nr_idle"}, 8, 16, 12, missing},
	} {
		got, err := layoutOf(kernel(t, 64, c.counts...))
		want := same
		want.queued, want.idle, want.runnable, want.delayed = c.queued, c.idle, c.runnable, c.delayed
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// What a kernel does not have, and what does not fit into an instruction, is an error that names it.
func TestLayoutOfOtherKernels(t *testing.T) {
	for want, types := range map[string]*btf.Spec{
		"cfs_rq has no field h_nr_queued or h_nr_running":    kernel(t, 64, "h_nr_idle"),
		"cfs_rq has no field h_nr_idle or idle_h_nr_running": kernel(t, 64, "h_nr_queued"),
		"does not count the tasks that sleep":                kernel(t, 64, "h_nr_running", "idle_h_nr_running", earlyLinux612),
		"rq has no field cfs":                                kernel(t, math.MaxInt16+1, "h_nr_queued", "h_nr_idle"),
	} {
		if _, err := layoutOf(types); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What runs is counted without the tasks that sleep, by the field that the kernel has for that, or by the difference.
func TestRunnable(t *testing.T) {
	l := layout{queued: 8, runnable: missing, delayed: missing}
	places := func(list asm.Instructions) (places []int16) {
		for _, i := range list {
			places = append(places, i.Offset)
		}
		return places
	}
	for _, c := range []struct {
		runnable, delayed int16
		want              []int16
	}{{missing, missing, []int16{64 + 8}}, {12, missing, []int16{64 + 12}}, {missing, 20, []int16{64 + 8, 64 + 20, 0}}} {
		l.runnable, l.delayed = c.runnable, c.delayed
		if got := places(l.loadRunnable(asm.R1, queue, 64)); !slices.Equal(got, c.want) {
			t.Errorf("%+v: loads from %v, want %v", c, got, c.want)
		}
	}
}
