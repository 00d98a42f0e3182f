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

// checkConfig prints what would be in force with a configuration file and the flags that are given beside it.
func checkConfig(s *stage.Session, o *options) error {
	l := live{path: o.checked, flag: "check-config", given: o.live.given}
	now, err := l.load()
	if err != nil {
		return stage.Usagef("%w", err)
	}
	var flags stage.Flags
	new(settings).flags(&flags)
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	given, file := l.given.values(), now.file.values()
	for _, name := range settingNames() {
		switch owner := ownerOf(name); {
		case owner != "" && owner != now.kind.Name:
		case given[name] != nil:
			fmt.Fprintf(w, "  %s\t%s\tflag\n", name, given[name])
		case file[name] != nil:
			fmt.Fprintf(w, "  %s\t%s\t%s\n", name, file[name], now.at(name))
		default:
			fmt.Fprintf(w, "  %s\t%s\tdefault\n", name, flags.Default(name))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return checkObjects(s, now)
}

// checkObjects prints what the file's objects say to this machine, taken as a node without labels.
func checkObjects(s *stage.Session, now *loaded) error {
	if now.objects.None() {
		return nil
	}
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this node's name: %w", err)
	}
	t := tick.Tick{Node: node, Time: s.Now().UTC().Truncate(time.Millisecond), Sample: new(tick.Sample)}
	file := objects{file: now.objects, log: s.Log}
	file.over(&t)
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, t.Sample.Config, "  ", "  "); err != nil {
		return fmt.Errorf("%s: the objects' settings: %w", now.path, err)
	}
	if _, err := fmt.Fprintf(s.Out, "\nsample.config of %s, taken as a node without labels\n  %s\n", node, &pretty); err != nil {
		return err
	}
	if now.objects.SLO != nil {
		for _, text := range now.objects.SLO.Unsupported {
			if _, err := io.WriteString(s.Out, "\nnot supported: "+text+"\n"); err != nil {
				return err
			}
		}
	}
	return nil
}
