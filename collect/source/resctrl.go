package source

import (
	"polder/lib/resctrl"
	"polder/lib/tick"
)

// Resctrl describes how the machine's cache and memory bandwidth can be divided. It is read when the mount appears, at each
// rescan (domains change with the online CPUs), and after a reading that failed. A missing mount is no error.
var Resctrl = Source{
	Name: "resctrl",
	Doc:  "ways of the L3 cache and steps of the memory bandwidth, from /sys/fs/resctrl/info where it is mounted",
	New:  func(e *Env) Reader { return &resctrlReader{root: e.Host.Root()} },
}

type resctrlReader struct {
	root   string
	of     resctrl.Identity // the mount that out was read from
	out    *tick.Resctrl
	failed bool
}

func (s *resctrlReader) Read(r *Round) error {
	at, mounted := resctrl.Mounted(s.root)
	if !mounted {
		s.out = nil
		return nil
	}
	var err error
	if s.out == nil || s.of != at || s.failed || r.Rescan {
		s.out, err = resctrl.Read(s.root)
		s.of, s.failed = at, err != nil
	}
	r.Sample.Resctrl = s.out
	return err
}
