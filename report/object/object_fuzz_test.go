package object

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// FuzzCNR reads any object that a cluster may have: fields of other programs never change, and a withdrawal removes all of ours.
func FuzzCNR(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},7,null]},"metadata":{"annotations":{"polder/taints":"a:NoSchedule,,b:NoExecute"}}}`,
		`{"spec":{"taints":{"key":1}},"status":{"resources":[],"topologyZone":[{"type":"Numa"},{"type":"GPU"},3],"resourceAllocatable":{"katalyst.kubewharf.io/reclaimed_millicpu":4}}}`,
		`{"metadata":{"annotations":7},"status":{"resources":{"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_memory":{}}},"capacity":3}}`,
	} {
		f.Add([]byte(seed), "a", "NoSchedule")
	}
	f.Fuzz(func(t *testing.T, data []byte, key, effect string) {
		var cnr map[string]any
		if json.Unmarshal(data, &cnr) != nil {
			return
		}
		present := TaintsOf(cnr)
		next := present.Want([]tick.Taint{{Key: key, Effect: effect}}, noon)
		for _, item := range present.list {
			if !slices.Contains(present.ours, taintName(item)) && !slices.ContainsFunc(next.list, func(v any) bool { return cmp.Equal(v, item) }) {
				t.Errorf("another program's taint %v was removed: %v", item, next.list)
			}
		}
		if key != "" && !strings.Contains(key+effect, ",") && !slices.ContainsFunc(next.list, func(v any) bool { return taintName(v) == key+":"+effect }) {
			t.Errorf("taint %q is not there: %v", key, next.list)
		}
		if again := next.Want([]tick.Taint{{Key: key, Effect: effect}}, noon); !again.Equal(next) {
			t.Errorf("written twice: %v, then %v", next, again)
		}
		// The patch writes the object, whatever else is in it, unless a part is of another kind, which no server accepts.
		if _, ok := cnr["metadata"].(map[string]any); ok && next.Patch().apply(cnr) == nil {
			if got := TaintsOf(cnr); !got.Equal(next) {
				t.Errorf("patched to %v; want %v", got, next)
			}
		}
		if fit, _ := forNode([]tick.Taint{{Key: key, Effect: effect}}); len(fit) > 0 && !strings.HasPrefix(key, TaintPrefix) {
			t.Errorf("taint %q is for a Node", key)
		}
		NodeHolds(cnr, Nothing())
		if a := NodeOffer(cnr, Koordinator, Prefix).Mid; a.MilliCPU != nil && *a.MilliCPU < 0 {
			t.Errorf("a Node offers %d", *a.MilliCPU)
		}
		Mark(cnr)
		CNRHolds(cnr, of(44000, 1))
		if patch := CNRWithdrawal(cnr); patch != nil {
			if err := patch.apply(cnr); err != nil || CNRWithdrawal(cnr) != nil {
				t.Errorf("left after a withdrawal: %v, %v", err, cnr)
			}
		}
	})
}
