package network

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"polder/isolate/network/plan"
	"polder/lib/tick"
)

// leafKind is the qdisc below each class: fair between flows, with short queues.
const leafKind = "fq_codel"

// links are the kernel's links with their qdiscs, in isolate's own network namespace.
type links struct {
	observed []netlink.Link
}

// isMissing reports whether the kernel lacks the requested feature; a link that has just been removed is not such a case.
func isMissing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) }

// explain adds a hint that helps to resolve an error.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (isolate --only network needs CAP_NET_ADMIN in the network namespace of the links)", err)
	}
	return err
}

// retryDump repeats a listing that the kernel reports as interrupted by a change.
func retryDump[T any](dump func() (T, error)) (T, error) {
	for range 3 {
		if result, err := dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return result, err
		}
	}
	return dump()
}

// observe lists the links with their root qdiscs.
func (k *links) observe() ([]plan.Link, error) {
	found, err := retryDump(netlink.LinkList)
	if err != nil {
		return nil, err
	}
	k.observed = found
	qdiscs, err := retryDump(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return nil, err
	}
	out := make([]plan.Link, 0, len(found))
	for _, f := range found {
		at := f.Attrs()
		l := plan.Link{Name: at.Name, Index: at.Index, IsLoopback: at.RawFlags&unix.IFF_LOOPBACK != 0, Leaves: map[uint16]string{}}
		for _, q := range qdiscs {
			a := q.Attrs()
			major, minor := netlink.MajorMinor(a.Parent)
			switch {
			case a.LinkIndex != at.Index:
			case a.Parent == netlink.HANDLE_ROOT:
				l.RootKind = q.Type()
				l.RootMajor, _ = netlink.MajorMinor(a.Handle)
			case major == plan.Handle:
				l.Leaves[minor] = q.Type()
			}
		}
		if l.RootMajor == plan.Handle {
			if l.Classes, err = classesOf(f); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func classesOf(l netlink.Link) (list []plan.Class, err error) {
	classes, err := retryDump(func() ([]netlink.Class, error) { return netlink.ClassList(l, 0) })
	for _, c := range classes {
		if htb, ok := c.(*netlink.HtbClass); ok {
			if major, minor := netlink.MajorMinor(htb.Handle); major == plan.Handle {
				list = append(list, plan.Class{Minor: minor, Rate: htb.Rate, Ceiling: htb.Ceil, Priority: htb.Prio})
			}
		}
	}
	return list, err
}

// execute executes one step.
func (k *links) execute(s plan.Step) error {
	root := netlink.QdiscAttrs{LinkIndex: s.Index, Handle: netlink.MakeHandle(plan.Handle, 0), Parent: netlink.HANDLE_ROOT}
	class := netlink.ClassAttrs{LinkIndex: s.Index, Handle: netlink.MakeHandle(plan.Handle, s.Class.Minor), Parent: root.Handle}
	if s.Class.Minor != plan.MinorRoot {
		class.Parent = netlink.MakeHandle(plan.Handle, plan.MinorRoot)
	}
	switch s.Op {
	case plan.AddRoot:
		htb := netlink.NewHtb(root)
		htb.Defcls = plan.MinorDefault
		return netlink.QdiscReplace(htb) // the kernel's default one cannot be replaced by adding
	case plan.SetClass:
		return netlink.ClassReplace(htbClass(class, s.Class))
	case plan.AddLeaf:
		// Without a handle the kernel selects one.
		return netlink.QdiscAdd(netlink.NewFqCodel(netlink.QdiscAttrs{LinkIndex: s.Index, Parent: class.Handle}))
	case plan.RemoveClass:
		return netlink.ClassDel(&netlink.HtbClass{ClassAttrs: class})
	case plan.RemoveRoot:
		return netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "htb"})
	}
	return fmt.Errorf("unknown step %s", s.Op)
}

const (
	// minBurst and burstsPerSecond set how much a class may send at once: 1 ms of its rate, and at least 10 packets, because the kernel's
	// timers are not finer.
	minBurst        = 10 * 1514
	burstsPerSecond = 1000
	maxBurst        = 64 << 20
	minQuantum      = 1514
	maxQuantum      = 60_000 // above 200000 the kernel warns
)

func htbClass(at netlink.ClassAttrs, c plan.Class) *netlink.HtbClass {
	burst := func(rate uint64) uint32 { return uint32(min(max(rate/burstsPerSecond, minBurst), maxBurst)) }
	class := netlink.NewHtbClass(at, netlink.HtbClassAttrs{
		Rate: c.Rate * 8, Ceil: c.Ceiling * 8, Buffer: burst(c.Rate), Cbuffer: burst(c.Ceiling), Prio: c.Priority,
		Quantum: uint32(min(max(c.Rate/10, minQuantum), maxQuantum)),
	})
	for _, rate := range []*uint64{&class.Rate, &class.Ceil} {
		if uint32(*rate) == 0 { // the library writes it to a 32-bit field too, where the kernel rejects 0
			*rate++
		}
	}
	return class
}

// counters reads the counters of classes.
func (k *links) counters(counted []plan.CountedClass) (out []tick.NetworkCount, err error) {
	classes := map[int][]netlink.Class{}
	for _, n := range counted {
		if _, isRead := classes[n.Index]; !isRead {
			i := slices.IndexFunc(k.observed, func(l netlink.Link) bool { return l.Attrs().Index == n.Index })
			var list []netlink.Class
			if list, err = retryDump(func() ([]netlink.Class, error) { return netlink.ClassList(k.observed[i], 0) }); err != nil {
				return out, err
			}
			classes[n.Index] = list
		}
		for _, c := range classes[n.Index] {
			a := c.Attrs()
			if a.Handle != netlink.MakeHandle(plan.Handle, n.Minor) || a.Statistics == nil || a.Statistics.Basic == nil ||
				a.Statistics.Queue == nil {
				continue
			}
			out = append(out, tick.NetworkCount{
				Link: n.Link, Class: n.Name, SentBytes: float64(a.Statistics.Basic.Bytes), SentPackets: float64(a.Statistics.Basic.Packets),
				DroppedPackets: float64(a.Statistics.Queue.Drops), BacklogBytes: float64(a.Statistics.Queue.Backlog),
			})
		}
	}
	return out, nil
}
