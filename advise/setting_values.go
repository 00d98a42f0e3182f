package main

import (
	"fmt"
	"polder/advise/class"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/katalyst"
	"polder/advise/limits"
	"polder/lib/config"
	"polder/lib/cpus"
	"polder/lib/stage"
	"slices"
	"strconv"
	"strings"
)

// optionalValue is a flag of type T that tells whether it was given.
type optionalValue[T any, P interface {
	*T
	stage.Value
}] struct{ into **T }

func optional[T any, P interface {
	*T
	stage.Value
}](into **T) stage.Value {
	return optionalValue[T, P]{into}
}

func (o optionalValue[T, P]) Set(text string) error {
	v := new(T)
	if err := P(v).Set(text); err != nil {
		return err
	}
	*o.into = v
	return nil
}

func (o optionalValue[T, P]) String() string {
	if o.into == nil || *o.into == nil {
		return ""
	}
	return P(*o.into).String()
}

// policyName is the name of one of the policies.
type policyName string

func (p *policyName) Set(text string) error {
	for _, known := range policies {
		if text == known.Name {
			*p = policyName(text)
			return nil
		}
	}
	return fmt.Errorf("%q is no policy: advise --list names them", text)
}

func (p *policyName) String() string { return string(*p) }

func (p *policyName) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, p.Set) }

// wholeNumber is a positive number.
type wholeNumber int

func (w *wholeNumber) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number from 1", text)
	}
	*w = wholeNumber(n)
	return nil
}

func (w *wholeNumber) String() string { return strconv.Itoa(int(*w)) }

func (w *wholeNumber) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, w.Set) }

// decimal is a number that is not negative.
type decimal float64

func (d *decimal) Set(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1e6) {
		return fmt.Errorf("%q is no number from 0", text)
	}
	*d = decimal(f)
	return nil
}

func (d *decimal) String() string { return strconv.FormatFloat(float64(*d), 'g', -1, 64) }

func (d *decimal) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, d.Set) }

// part is a part of a whole, written as a percentage.
type part float64

func (p *part) Set(text string) error {
	f, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !strings.HasSuffix(text, "%") || !(f >= 0 && f <= 100) {
		return fmt.Errorf("%q is no part: want a percentage from 0%% to 100%%", text)
	}
	*p = part(f / 100)
	return nil
}

func (p *part) String() string { return strconv.FormatFloat(100*float64(*p), 'g', -1, 64) + "%" }

func (p *part) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, p.Set) }

// className is the name of a scheduling class.
type className string

func (c *className) Set(text string) error {
	if !slices.Contains(class.Names, text) {
		return fmt.Errorf("%q is no class: want %s", text, strings.Join(class.Names, ", "))
	}
	*c = className(text)
	return nil
}

func (c *className) String() string { return string(*c) }

func (c *className) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, c.Set) }

// guardMode switches the guard.
type guardMode string

func (g *guardMode) Set(text string) error {
	if !slices.Contains(guard.Modes, text) {
		return fmt.Errorf("%q: want %s", text, strings.Join(guard.Modes, " or "))
	}
	*g = guardMode(text)
	return nil
}

func (g *guardMode) String() string { return string(*g) }

func (g *guardMode) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, g.Set) }

// batchMode says whether batch's memory is capped.
type batchMode string

func (b *batchMode) Set(text string) error {
	if !slices.Contains(limits.BatchModes, text) {
		return fmt.Errorf("%q: want %s", text, strings.Join(limits.BatchModes, " or "))
	}
	*b = batchMode(text)
	return nil
}

func (b *batchMode) String() string { return string(*b) }

func (b *batchMode) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, b.Set) }

// serviceMode says whether services' memory is protected.
type serviceMode string

func (m *serviceMode) Set(text string) error {
	if !slices.Contains(limits.ServiceModes, text) {
		return fmt.Errorf("%q: want %s", text, strings.Join(limits.ServiceModes, " or "))
	}
	*m = serviceMode(text)
	return nil
}

func (m *serviceMode) String() string { return string(*m) }

func (m *serviceMode) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, m.Set) }

// diskShare is batch's share of the disks.
type diskShare string

func (d *diskShare) Set(text string) error {
	if !slices.Contains(disk.Shares, text) {
		return fmt.Errorf("%q: want %s", text, strings.Join(disk.Shares, " or "))
	}
	*d = diskShare(text)
	return nil
}

func (d *diskShare) String() string { return string(*d) }

func (d *diskShare) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, d.Set) }

// permille is a number of thousandths of the time.
type permille float64

func (p *permille) Set(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f > 0 && f <= 100_000) {
		return fmt.Errorf("%q: want thousandths of the time, over 0 and up to 100000 (a hundred threads that wait all the time)", text)
	}
	*p = permille(f)
	return nil
}

func (p *permille) String() string { return strconv.FormatFloat(float64(*p), 'g', -1, 64) }

func (p *permille) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, p.Set) }

// limitName says what holds the reclaimed pods on a small machine.
type limitName string

func (l *limitName) Set(text string) error {
	if text != katalyst.LimitClass && text != katalyst.LimitQuota {
		return fmt.Errorf("%q: want %s or %s", text, katalyst.LimitClass, katalyst.LimitQuota)
	}
	*l = limitName(text)
	return nil
}

func (l *limitName) String() string { return string(*l) }

func (l *limitName) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, l.Set) }

// cpuList is a checked CPU list.
type cpuList string

func (c *cpuList) Set(text string) error {
	set, err := cpus.Parse(text)
	*c = cpuList(set.String())
	return err
}

func (c *cpuList) String() string { return string(*c) }

func (c *cpuList) UnmarshalYAML(n *config.Node) error { return config.SetScalar(n, c.Set) }
