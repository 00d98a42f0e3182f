package network

import (
	"slices"
	"testing"
	"time"

	"polder/lib/tick"
)

// A link that no advice names any more is released after a minute, not before; also that of an earlier isolate.
func TestRelease(t *testing.T) {
	m := newMachine(t)
	m.checkNoErrors(m.apply(desired("eth0")))
	tables := m.ownTables()
	m.restart()
	m.time = m.time.Add(releaseAfter / 2)
	m.apply(nil)
	if got := m.link("eth0"); !got.IsOurs() || len(tables) == 0 || !slices.Equal(m.ownTables(), tables) {
		t.Fatalf("after half the time %+v, tables %v, before %v", got, m.ownTables(), tables)
	}
	m.time = m.time.Add(releaseAfter/2 + time.Second)
	if out := m.apply(nil); m.link("eth0").RootMajor != 0 || len(m.ownTables()) > 0 {
		t.Errorf("after the time %+v, %+v, tables %v", m.link("eth0"), out, m.ownTables())
	}
	if out := m.apply(nil); out.Applied > 0 || len(out.Errors) > 0 {
		t.Errorf("after that %+v", out)
	}
	// What another program sets there from then on does not concern a restore, also not that of another process.
	setRoot(t, "eth0")
	m.restart()
	if restored, err := m.Restore(); err != nil || !restored.IsComplete() || m.link("eth0").RootMajor != 1 {
		t.Errorf("restore %s, %v, %+v", restored, err, m.link("eth0"))
	}
}

// A link that was released and is shaped again is in the journal again.
func TestShapedAgainAfterRelease(t *testing.T) {
	m := newMachine(t)
	m.checkNoErrors(m.apply(desired("eth0")))
	m.time = m.time.Add(releaseAfter + time.Second)
	m.apply(nil)
	m.checkNoErrors(m.apply(desired("eth0")))
	m.restart()
	if restored, err := m.Restore(); err != nil || restored.Links != 1 || m.link("eth0").RootMajor != 0 {
		t.Errorf("restore %s, %v, %+v", restored, err, m.link("eth0"))
	}
}

// Where the advice names another link instead, as after a failover, packets get its classes at once, and keep those of the former link
// until that is released.
func TestAnotherLink(t *testing.T) {
	m := newMachine(t)
	addLink(t, "eth1")
	var marks []string
	for _, links := range [][]string{{"eth0"}, {"eth1"}, {"eth1", "eth0"}, {"eth1"}} {
		both := &tick.Network{}
		for _, name := range links {
			both.Links = append(both.Links, desired(name).Links...)
		}
		m.checkNoErrors(m.apply(both))
		comment, _, err := m.tables.stateOf(inet)
		if err != nil {
			t.Fatal(err)
		}
		marks = append(marks, comment)
	}
	m.time = m.time.Add(releaseAfter + time.Second)
	m.apply(desired("eth1"))
	released, _, _ := m.tables.stateOf(inet)
	if marks[1] == marks[0] || marks[1] != marks[2] || marks[1] != marks[3] || released == marks[1] || released == "" {
		t.Errorf("marks of eth0, then eth1, both, eth1: %q; after the release of eth0: %q", marks, released)
	}
}
