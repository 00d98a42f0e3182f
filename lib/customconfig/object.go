// Package customconfig resolves which of Katalyst's configuration objects are in force on a node, checks them, and reads their
// values for evict. It is pure, and the same for a cluster's objects and for those in a file.
package customconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"polder/lib/clip"
	"polder/lib/evictconfig"
	"polder/lib/fields"
)

// Object is an API object as decoded from JSON.
type Object = fields.Object

// Kind is a kind of configuration objects.
type Kind struct {
	// Name is the kind, Resource its name in a KatalystCustomConfig's target, Key its name in sample.config.
	Name, Resource, Key string
}

// These kinds are read, of this group and version.
var (
	AdminQoS = Kind{evictconfig.AdminQoSConfiguration, "adminqosconfigurations", "adminQoSConfiguration"}
	Eviction = Kind{evictconfig.EvictionConfiguration, "evictionconfigurations", "evictionConfiguration"}
	Kinds    = []Kind{AdminQoS, Eviction}
)

const (
	group   = "config.katalyst.kubewharf.io"
	version = "v1alpha1"
	// targetKind is the kind whose objects enable others.
	targetKind = "KatalystCustomConfig"
)

// maxConfig bounds the JSON text of one object's configuration.
const maxConfig = 128 << 10

// Target is a KatalystCustomConfig: it enables a kind of objects.
type Target struct {
	Namespace, Name string
	Generation      int64
	// Resource is empty if the target is of another group or version.
	Resource string
	// Keys are the keys that node label selectors may have, by priority.
	Keys map[int64][]string
}

// TargetOf reads a KatalystCustomConfig.
func TargetOf(o Object) *Target {
	t := &Target{Namespace: fields.Text(o, "metadata", "namespace"), Name: fields.Text(o, "metadata", "name"), Keys: map[int64][]string{}}
	t.Generation, _ = fields.Integer(o, "metadata", "generation")
	target := fields.Child(o, "spec", "targetType")
	if fields.Text(target, "group") == group && fields.Text(target, "version") == version {
		t.Resource = fields.Text(target, "resource")
	}
	for _, allowed := range fields.List(o, "spec", "nodeLabelSelectorAllowedKeyList") {
		if priority, ok := fields.Integer(allowed, "priority"); ok || allowed["priority"] == nil {
			t.Keys[priority] = append(t.Keys[priority], fields.Texts(allowed, "keyList")...)
		}
	}
	if key := fields.Text(o, "spec", "nodeLabelSelectorKey"); key != "" { // of the first version, which had no priorities
		t.Keys[0] = append(t.Keys[0], key)
	}
	return t
}

// Candidate is a configuration object.
type Candidate struct {
	Namespace, Name string
	Selector        labels.Selector // nil if it has none
	Priority        int64
	NodeNames       []string
	// Expires is when an object for named nodes expires.
	Expires time.Time
	// Config is spec.config undecoded, {} if there is none.
	Config json.RawMessage
	// HoldReason is why it must not come into force now, empty if it may.
	HoldReason string
	// Err means that the object is invalid by itself.
	Err error
}

// FieldError is an error in one field of an object.
type FieldError struct {
	// Path are the keys from the object's top.
	Path []string
	Err  error
}

func (e *FieldError) Error() string {
	path := e.Path
	if len(path) > 1 && path[0] == "spec" {
		path = path[1:]
	}
	return fmt.Sprintf("%s: %v", dotted(path), e.Err)
}

// maxPathLength exceeds the longest path of the API.
const maxPathLength = 200

// dotted returns a path for a message.
func dotted(path []string) string { return clip.Text(strings.Join(path, "."), maxPathLength) }

func (e *FieldError) Unwrap() error { return e.Err }

// CandidateOf reads a configuration object of a kind.
func CandidateOf(kind Kind, o Object) *Candidate {
	c := &Candidate{Namespace: fields.Text(o, "metadata", "namespace"), Name: fields.Text(o, "metadata", "name")}
	var errs []error
	addError := func(err error, path ...string) {
		errs = append(errs, &FieldError{append([]string{"spec"}, path...), err})
	}

	if v := fields.Any(o, "spec", "priority"); v != nil {
		var ok bool
		if c.Priority, ok = fields.Integer(o, "spec", "priority"); !ok {
			addError(errors.New("it is not a whole number"), "priority")
		}
	}
	if s := fields.Text(o, "spec", "nodeLabelSelector"); s != "" {
		var err error
		if c.Selector, err = labels.Parse(s); err != nil {
			addError(fmt.Errorf("%q: %w", fields.Clip(s), err), "nodeLabelSelector")
		}
	}
	if err := c.ephemeral(o); err != nil {
		addError(err, "ephemeralSelector")
	}
	if fields.Bool(o, "spec", "paused") {
		c.HoldReason = "it is paused"
	}
	if canary := fields.Any(o, "spec", "updateStrategy", "rollingUpdate", "canary"); canary != nil && canary != "100%" {
		c.HoldReason = fmt.Sprintf("its canary is %s, and whether this node is one of the first is unknown", fields.Clip(fmt.Sprint(canary)))
	}
	config := fields.Child(o, "spec", "config")
	if config == nil {
		config = Object{}
	}
	var err error
	if c.Config, err = json.Marshal(config); err != nil || len(c.Config) > maxConfig {
		addError(fmt.Errorf("its configuration of %d bytes is left out: want %d at most", len(c.Config), maxConfig), "config")
		c.Config = nil
	}
	problems := EvictionOf(kind, config).Errs
	if kind == AdminQoS {
		problems = append(problems, ReclaimedOf(config).Errs...)
	}
	for i, err := range problems {
		if i == maxProblems {
			addError(fmt.Errorf("and %d more", len(problems)-maxProblems), "config")
			break
		}
		addError(err.Err, append([]string{"config"}, err.Path...)...)
	}
	c.Err = errors.Join(errs...)
	return c
}

// ephemeral reads the names of the nodes for which the object is, and its expiry.
func (c *Candidate) ephemeral(o Object) error {
	c.NodeNames = fields.Texts(o, "spec", "ephemeralSelector", "nodeNames")
	duration := fields.Text(o, "spec", "ephemeralSelector", "lastDuration")
	switch {
	case len(c.NodeNames) > 0 && c.Selector != nil:
		return errors.New("it has both nodeNames and a nodeLabelSelector")
	case len(c.NodeNames) > 0 && duration == "":
		return errors.New("nodeNames without lastDuration")
	case len(c.NodeNames) == 0 && duration != "":
		return errors.New("lastDuration without nodeNames")
	case duration == "":
		return nil
	}
	d, err := time.ParseDuration(duration)
	if err != nil || d <= 0 {
		return fmt.Errorf("lastDuration %q is not a time span", fields.Clip(duration))
	}
	created := fields.Time(o, "metadata", "creationTimestamp")
	if created.IsZero() {
		return errors.New("lastDuration without a metadata.creationTimestamp to count from")
	}
	c.Expires = created.Add(d)
	return nil
}

func (c *Candidate) name() string { return c.Namespace + "/" + c.Name }
