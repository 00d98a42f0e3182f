package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"polder/lib/qos"
	"polder/lib/tick"
)

const optOut = "polder/evict"

// modest is a pod that decides with its labels and annotations and protects itself.
func modest(uid string) *Pod {
	return (&Reading{Annotations: []string{optOut}}).Pod(object{"metadata": object{
		"uid": uid, "labels": object{qos.KoordinatorClass: "LS"},
		"annotations": object{qos.KatalystLevel: "shared_cores", qos.EvictionPolicy: "[]", optOut: "false", "koordinator.sh/note": "x"},
	}})
}

// greedy is a pod with as much as it may have of labels and annotations: of a key that decides or protects, or of others.
func greedy(uid string, keys ...string) *Pod {
	annotations := object{optOut: "false"}
	for i := range 4 {
		annotations[fmt.Sprintf("koordinator.sh/%d", i)] = strings.Repeat("z", maxValue-100)
	}
	for _, key := range keys {
		annotations[key] = strings.Repeat("z", maxValue-100)
	}
	return (&Reading{Annotations: []string{optOut}}).Pod(object{"metadata": object{
		"uid": uid, "labels": object{qos.KoordinatorClass: "BE"}, "annotations": annotations,
	}})
}

// writtenOf is what a tick has of all pods that tenants write.
func writtenOf(t *testing.T, pods []*Pod) (size int) {
	t.Helper()
	for _, p := range pods {
		text, err := tick.Marshal(map[string]any{"labels": p.Tick.Labels, "annotations": p.Tick.Annotations, "errors": p.Tick.Errors})
		if err != nil {
			t.Fatal(err)
		}
		size += len(text) - len(`{"annotations":,"errors":,"labels":}`)
	}
	return size
}

func TestWithin(t *testing.T) {
	const bound = 64 << 10
	many := func(n int, keys ...string) (pods []*Pod) {
		pods = append(pods, modest("a"))
		for i := range n {
			pods = append(pods, greedy(fmt.Sprintf("b%04d", i), keys...))
		}
		return append(pods, modest("c"))
	}
	for _, c := range []struct {
		name    string
		pods    []*Pod
		whole   int // of the greedy ones
		decided bool
	}{
		{"all fit", many(4), 4, true},
		{"one is too many", many(5), 4, true},
		{"many", many(200), 1, true},
		{"many that decide", many(200, "koordinator.sh/cpuBurst"), 0, false},
		{"many that protect", many(200, qos.EvictionPolicy), 0, false},
	} {
		original := slices.Clone(c.pods)
		got := within(c.pods, bound)
		if !slices.Equal(original, c.pods) {
			t.Errorf("%s: the list itself is changed", c.name)
		}
		if size := writtenOf(t, got); size > bound+100*len(got) || c.decided && size > bound {
			t.Errorf("%s: %d bytes; want %d", c.name, size, bound)
		}
		if len(got) != len(original) || got[0] != original[0] || got[len(got)-1] != original[len(got)-1] {
			t.Errorf("%s: modest pods do not stay as they are", c.name)
		}
		whole, decided := 0, true
		for i, p := range got[1 : len(got)-1] {
			was := original[i+1]
			if p.Tick.UID != was.Tick.UID || p.Tick.Annotations[optOut] != "false" {
				t.Fatalf("%s: pod %s in place of %s, annotations %.100q", c.name, p.Tick.UID, was.Tick.UID, p.Tick.Annotations)
			}
			if p == was {
				whole++
				continue
			}
			decided = decided && p.Tick.Labels[qos.KoordinatorClass] == "BE"
			if last := p.Tick.Errors[len(p.Tick.Errors)-1]; !strings.Contains(last, "too long for a tick") {
				t.Errorf("%s: errors %q", c.name, p.Tick.Errors)
			}
		}
		if whole != c.whole || decided != c.decided {
			t.Errorf("%s: %d whole, those that decide stay: %t; want %d, %t", c.name, whole, decided, c.whole, c.decided)
		}
		if again := within(c.pods, bound); writtenOf(t, again) != writtenOf(t, got) {
			t.Errorf("%s: another result the second time", c.name)
		}
	}
}

// What protects a pod is still in force where only that is left.
func TestWithinProtects(t *testing.T) {
	var pods []*Pod
	for i := range 20 {
		pods = append(pods, greedy(fmt.Sprint(i), qos.EvictionPolicy), modest(fmt.Sprint("m", i)))
	}
	for _, p := range within(pods, 1) {
		if qos.MayEvict(&p.Tick, "MemoryEvict") || p.Tick.Annotations[optOut] != "false" {
			t.Errorf("%s: annotations %.100q", p.Tick.UID, p.Tick.Annotations)
		}
	}
}

// Pods that have ended take no room from others.
func TestWithinEnded(t *testing.T) {
	pods := []*Pod{greedy("a")}
	for i := range 100 {
		p := greedy(fmt.Sprint(i))
		p.Tick.Phase = "Succeeded"
		pods = append(pods, p)
	}
	if got := within(pods, 64<<10); got[0] != pods[0] {
		t.Errorf("%.100q", got[0].Tick.Errors)
	}
}
