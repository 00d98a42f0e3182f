package explain

import (
	"fmt"
	"slices"

	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/report/view"
)

// describeNetwork describes batch's share of each uplink, and the kernel's counters of it. It returns nothing where the advice has none.
func describeNetwork(t *tick.Tick) (s []string) {
	if t.Advice == nil || t.Advice.Network == nil {
		return nil
	}
	for _, l := range t.Advice.Network.Links {
		for _, c := range l.Classes {
			if c.Default {
				continue
			}
			s = append(s, fmt.Sprintf("On %s %s is guaranteed %s of %s Mbit/s, and has up to %s of what the default class leaves idle.",
				brief(l.Link), brief(c.Class), view.Megabits(c.RateBitsPerSecond), view.Megabits(l.RateBitsPerSecond),
				view.Megabits(c.CeilingBitsPerSecond)))
			if t.Network == nil {
				continue
			}
			if i := slices.IndexFunc(t.Network.Classes, func(x tick.NetworkCount) bool { return x.Link == l.Link && x.Class == c.Class }); i >= 0 {
				x := t.Network.Classes[i]
				s = append(s, fmt.Sprintf("Its full queue has dropped %s since it was created, and %s KiB wait.",
					phrase.Count(int(min(x.DroppedPackets, 1e15)), "packet"), phrase.Decimal(x.BacklogBytes/1024, 0)))
			}
		}
	}
	if t.Network == nil && len(s) > 0 {
		s = append(s, "Whether that is in force is not recorded: isolate --only network is not in the pipe.")
	}
	if t.Network != nil && len(t.Network.Errors) > 0 {
		s = append(s, fmt.Sprintf("Not all of it is in force: %s.", plain(t.Network.Errors[0].Error)))
	}
	return s
}
