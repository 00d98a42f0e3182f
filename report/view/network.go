package view

import (
	"fmt"
	"slices"

	"polder/lib/clip"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// networkSection has a row for each class of each link that is, or shall be, shaped.
func (m *Model) networkSection() section {
	if m.Tick.Advice == nil || m.Tick.Advice.Network == nil {
		return section{}
	}
	h := (&line{}).add(heading, "network")
	if m.Tick.Network == nil {
		h.add(dim, "  advised; isolate --only network is not in the pipe")
	}
	s := section{heading: h, least: 2}
	for _, l := range m.Tick.Advice.Network.Links {
		for _, c := range l.Classes {
			row := (&line{}).add(plain, fit(clip.Clean(l.Link), 16)).add(dim, " ").add(plain, fit(clip.Clean(c.Class), 12))
			row.add(dim, " ").add(plain, fit(Megabits(c.RateBitsPerSecond)+" to "+Megabits(c.CeilingBitsPerSecond)+" Mbit/s", 26))
			if n := m.Tick.Network; n != nil {
				at := slices.IndexFunc(n.Classes, func(x tick.NetworkCount) bool { return x.Link == l.Link && x.Class == c.Class })
				if at >= 0 {
					x := n.Classes[at]
					row.add(dim, " sent ").add(plain, Bytes(&x.SentBytes)).
						add(dim, "  dropped "+phrase.Decimal(x.DroppedPackets, 0)+" packets, waiting ").add(plain, Bytes(&x.BacklogBytes))
				}
			}
			s.rows = append(s.rows, row)
		}
	}
	return s
}

// Megabits is a rate of bits per second, in Mbit/s.
func Megabits(bits int64) string { return fmt.Sprintf("%.4g", float64(bits)/1e6) }
