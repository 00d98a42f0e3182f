package phrase

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods", -1: "-1 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestFirst(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 2: "a, b", 3: "a, b and 1 more", 5: "a, b and 3 more"} {
		if got := First([]string{"a", "b", "c", "d", "e"}[:n], 2); got != want {
			t.Errorf("First of %d = %q, want %q", n, got, want)
		}
	}
}

func TestNonzero(t *testing.T) {
	const want = "restored 1 value, 2 skipped: changed externally, 1 not restored"
	got := Nonzero("restored 1 value", Number{0, "unchanged"}, Number{2, "skipped: changed externally"}, Number{1, "not restored"})
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Nonzero("restored 0 values"); got != "restored 0 values" {
		t.Errorf("%q", got)
	}
}
