package cgroup_test

import (
	"encoding/binary"
	"testing"
	"time"

	"polder/lib/cgroup"
	"polder/tests/await"
	"polder/tests/group"
)

// The kernel's own count of a cgroup's runnable threads equals that of the threads' files. It is not used if it does not include the
// descendants.
func TestRunnableByMessageAndByFile(t *testing.T) {
	h, err := cgroup.Detect("/")
	if err != nil {
		t.Fatal(err)
	}
	v1 := h.Version("cpuacct") == 1
	above := group.New(t, nil, "runnable")
	asleep, busy := group.New(t, above, "asleep"), group.New(t, above, "busy")
	asleep.Sleep(t)
	for range 3 {
		busy.Run(t, "while :; do :; done")
	}
	byFile := cgroup.NewReader(h, false)
	byFile.WithoutMessages()
	for _, tt := range []struct {
		cgroup  string
		want    uint64
		message bool
	}{{asleep.Name, 0, v1}, {busy.Name, 3, v1}, {above.Name, 3, false}} {
		r := cgroup.NewReader(h, false)
		await.Until(t, time.Minute, "runnable threads of "+tt.cgroup, func() string {
			var one, other cgroup.Walk
			done, ok := r.Runnable(tt.cgroup, &one, nil)
			doneByFile, okByFile := byFile.Runnable(tt.cgroup, &other, nil)
			if !done || !ok || !doneByFile || !okByFile || one.Count != tt.want || other.Count != tt.want {
				return "not yet as wanted"
			}
			return ""
		})
		if _, ok := r.States(tt.cgroup); ok != tt.message {
			t.Errorf("%s by message: %v; want %v", tt.cgroup, ok, tt.message)
		}
	}
	if _, ok := cgroup.NewReader(h, false).States(above.Name + "/gone"); ok {
		t.Error("a missing cgroup was counted")
	}
}

// The responses are the kernel's, but arbitrary ones must be parsed without harm, too.
func FuzzCgroupStatsAnswer(f *testing.F) {
	message := func(kind uint16, rest ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(rest)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), rest...)
	}
	f.Add(message(0x16, 5, 1, 0, 0, 12, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(message(0x16, 5, 1, 0, 0, 12, 0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 0, 1, 0, 9))
	f.Add(message(2, 0xfe, 0xff, 0xff, 0xff))
	f.Add(message(0x16, 5, 1, 0, 0, 255, 255, 1, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if value, err := cgroup.Answer(answer, 1); err == nil && len(value) > len(answer) {
			t.Errorf("%d bytes of %d", len(value), len(answer))
		}
	})
}
