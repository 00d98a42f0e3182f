package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

// checkConfig prints the settings that a configuration file and the given flags result in.
func checkConfig(s *stage.Session, o *options) error {
	l := liveSettings{path: o.checkedFile, flag: "check-config", fromFlags: o.live.fromFlags, isSet: s.IsSet}
	current, err := l.load()
	if err != nil {
		return stage.Usagef("%w", err)
	}
	current.warn(s.Log)
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	for _, r := range current.Rows() {
		switch {
		case r.Policy != "" && r.Policy != current.Policy:
		case l.hasFlag(r.Name):
			fmt.Fprintf(w, "  %s\t%s\tflag\n", r.Name, r)
		case current.inFile(r.Name):
			fmt.Fprintf(w, "  %s\t%s\t%s\n", r.Name, r, current.position(r.Name))
		default:
			fmt.Fprintf(w, "  %s\t%s\tdefault\n", r.Name, r.Default)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return checkObjects(s, current)
}

// checkObjects prints what the file's objects contain for this machine, as for a node without labels.
func checkObjects(s *stage.Session, current *loaded) error {
	if current.objects.IsEmpty() {
		return nil
	}
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this node's name: %w", err)
	}
	t := tick.Tick{Node: node, Time: s.Now().UTC().Truncate(time.Millisecond), Sample: new(tick.Sample)}
	file := objects{file: current.objects, log: s.Log}
	file.override(&t)
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, t.Sample.Config, "  ", "  "); err != nil {
		return fmt.Errorf("%s: format the objects' settings: %w", current.path, err)
	}
	if _, err := fmt.Fprintf(s.Out, "\nsample.config of %s, as for a node without labels\n  %s\n", node, &pretty); err != nil {
		return err
	}
	if current.objects.SLO != nil {
		for _, text := range current.objects.SLO.Unsupported {
			if _, err := io.WriteString(s.Out, "\nnot supported: "+text+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}
