package network

import (
	"maps"
	"slices"

	"polder/isolate/network/plan"
	"polder/lib/phrase"
)

// Restored counts what a restore did.
type Restored struct {
	Links    int // links released to the kernel
	Tables   int // tables removed
	Gone     int // links and tables that are gone, or have the kernel's default again
	External int // those that another program has set meanwhile
	Unknown  int // journal entries that another version of isolate wrote
	Failed   int
}

// IsComplete reports whether nothing is left to restore.
func (r Restored) IsComplete() bool { return r.External+r.Unknown+r.Failed == 0 }

// Restore removes the qdiscs that were set, so that the kernel sets its default, and the tables that were created; it removes the journal
// when everything is restored.
func (a *Applier) Restore() (Restored, error) {
	j := a.Journal
	out := Restored{Unknown: j.UnknownLines()}
	observed, err := a.links.observe()
	if err != nil {
		return out, err
	}
	for _, f := range []family{inet, netdev} { // first: a packet with the number of a removed class would fall into the default class
		if j.tables[f.name] {
			a.restoreTable(f, &out)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.links)) {
		i := slices.IndexFunc(observed, func(l plan.Link) bool { return l.Name == name && l.Index == j.links[name].Index })
		switch {
		case i < 0 || observed[i].RootMajor == 0:
			out.Gone++
		case !observed[i].IsOurs():
			out.External++
			a.Log.Warn("network: skipped: another program has set the link's qdisc", "link", name, "qdisc", observed[i].RootKind)
		default:
			var err error
			if !a.DryRun {
				err = a.links.execute(plan.Step{Op: plan.RemoveRoot, Link: name, Index: observed[i].Index})
			}
			if err != nil {
				out.Failed++
				a.Log.Warn("network: not restored", "link", name, "error", explain(err))
				continue
			}
			out.Links++
			a.Log.Info("network: restored the kernel's default qdisc", "link", name, "dryRun", a.DryRun)
		}
	}
	if out.Failed > 0 || out.External > 0 || a.DryRun {
		return out, nil
	}
	return out, j.Remove()
}

func (a *Applier) restoreTable(f family, out *Restored) {
	observed, isExternal, err := a.tables.stateOf(f)
	if err == nil && !isExternal && observed != "" && !a.DryRun {
		err = a.tables.remove(f)
	}
	switch {
	case err != nil:
		out.Failed++
		a.Log.Warn("network: not restored", "table", f.name+" "+tableName, "error", explain(err))
	case isExternal:
		out.External++
		a.Log.Warn("network: skipped", "table", f.name+" "+tableName, "error", errExternal)
	case observed == "":
		out.Gone++
	default:
		out.Tables++
		a.Log.Info("network: table removed", "table", f.name+" "+tableName, "dryRun", a.DryRun)
	}
}

// String returns the result in one line.
func (r Restored) String() string {
	return phrase.Nonzero("network: restored "+phrase.Count(r.Links, "link")+", removed "+phrase.Count(r.Tables, "table"),
		phrase.Number{N: r.Gone, Text: "skipped: already gone"},
		phrase.Number{N: r.External, Text: "skipped: changed externally"},
		phrase.Number{N: r.Unknown, Text: "skipped: entries of another version of isolate"},
		phrase.Number{N: r.Failed, Text: "not restored"},
	)
}
