package network

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"polder/isolate/network/plan"
)

// tableName is the name of Polder's two tables: the one in family inet marks the packets of sockets and turns marks into classes, the
// one in netdev marks the packets that leave pods.
const tableName = "polder"

// stateChain is a chain without a hook that has one rule: its comment identifies the table as Polder's, and describes its rules.
const stateChain = "state"

// commentPrefix is the prefix of that comment.
const commentPrefix = "polder "

// tables are Polder's nftables tables.
type tables struct{}

// ruleset is the complete content of the tables.
type ruleset struct {
	cgroups []cgroupMark
	links   []linkMark
	targets []plan.Target
}

// family is the family of one of the two tables.
type family struct {
	number nftables.TableFamily
	name   string
}

var (
	inet   = family{nftables.TableFamilyINet, "inet"}
	netdev = family{nftables.TableFamilyNetdev, "netdev"}
)

// comment returns the comment of a family's table; empty if the table is not needed.
func (s *ruleset) comment(f family) string {
	if len(s.targets) == 0 || f == netdev && len(s.links) == 0 {
		return ""
	}
	text := fmt.Sprint(s.links)
	if f == inet {
		text = fmt.Sprint(s.cgroups, s.targets)
	}
	return commentPrefix + fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
}

// stateOf returns the comment of Polder's table, empty if there is none. isExternal means that the table of its name is another program's.
func (tables) stateOf(f family) (comment string, isExternal bool, err error) {
	c, err := nftables.New()
	if err != nil {
		return "", false, err
	}
	all, err := c.ListTablesOfFamily(f.number)
	if err != nil {
		return "", false, err
	}
	if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == tableName && t.Family == f.number }) {
		return "", false, nil
	}
	table := &nftables.Table{Name: tableName, Family: f.number}
	rules, err := c.GetRules(table, &nftables.Chain{Name: stateChain, Table: table})
	if err != nil || len(rules) != 1 {
		return "", true, err
	}
	// The comment is encoded as a type, a length and the zero-terminated text.
	_, text, found := bytes.Cut(rules[0].UserData, []byte(commentPrefix))
	if !found || len(text) == 0 {
		return "", true, nil
	}
	return commentPrefix + string(text[:len(text)-1]), false, nil
}

// set replaces a whole table in one transaction of the kernel: no packet meets a partial table.
func (tables) set(f family, s *ruleset, comment string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: tableName, Family: f.number}
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	state := c.AddChain(&nftables.Chain{Name: stateChain, Table: table})
	c.AddRule(&nftables.Rule{
		Table: table, Chain: state, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}},
		UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
	})
	if f == inet {
		err = s.addInet(c, table)
	} else {
		s.addNetdev(c, table)
	}
	if err != nil {
		return err
	}
	return c.Flush()
}

// remove removes a table.
func (tables) remove(f family) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Name: tableName, Family: f.number})
	return c.Flush()
}

// maxElements is the number of set elements in one message.
const maxElements = 500

// addInet adds the chain that marks the packets of sockets, and the chain that turns marks into classes.
func (s *ruleset) addInet(c *nftables.Conn, table *nftables.Table) error {
	policy := nftables.ChainPolicyAccept
	if len(s.cgroups) > 0 {
		output := c.AddChain(&nftables.Chain{
			Name: "sockets", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput,
			Priority: nftables.ChainPriorityMangle, Policy: &policy,
		})
		for mark := uint32(1) << 12; mark <= plan.MarkMask; mark += 1 << 12 {
			if err := s.addSockets(c, table, output, mark); err != nil {
				return err
			}
		}
	}
	out := c.AddChain(&nftables.Chain{
		Name: "classes", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityMangle, Policy: &policy,
	})
	for _, t := range s.targets {
		c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIF, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(uint32(t.Index))},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{
				SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(plan.MarkMask),
				Xor: binaryutil.NativeEndian.PutUint32(0),
			},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(t.Mark)},
			&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(t.Priority)},
			&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: 1},
		}})
	}
	return nil
}

// addSockets adds a rule for each depth at which cgroups have a mark: the kernel compares a socket's cgroup at one depth.
func (s *ruleset) addSockets(c *nftables.Conn, table *nftables.Table, chain *nftables.Chain, mark uint32) error {
	for _, depth := range (&sources{cgroups: s.cgroups}).depths() {
		var elements []nftables.SetElement
		for _, g := range s.cgroups {
			if g.mark == mark && g.depth == depth {
				elements = append(elements, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint64(g.id)})
			}
		}
		if len(elements) == 0 {
			continue
		}
		set := &nftables.Set{Table: table, Name: fmt.Sprintf("cgroups-%x-%d", mark, depth), KeyType: nftables.TypeCGroupV2, KeyByteOrder: binaryutil.NativeEndian}
		if err := c.AddSet(set, elements[:min(len(elements), maxElements)]); err != nil {
			return err
		}
		for at := maxElements; at < len(elements); at += maxElements {
			if err := c.SetAddElements(set, elements[at:min(len(elements), at+maxElements)]); err != nil {
				return err
			}
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append([]expr.Any{
			&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: depth, Register: 1},
			&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
		}, setMark(mark)...)})
	}
	return nil
}

// setMark sets Polder's bits of a packet's mark, and does not change the others.
func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^uint32(plan.MarkMask)), Xor: binaryutil.NativeEndian.PutUint32(mark),
		},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

// addNetdev adds a chain for each link into a pod, which marks the packets that leave the pod. The kernel has cleared marks that the pod
// itself set.
func (s *ruleset) addNetdev(c *nftables.Conn, table *nftables.Table) {
	policy := nftables.ChainPolicyAccept
	for _, l := range s.links {
		chain := c.AddChain(&nftables.Chain{
			Name: fmt.Sprintf("link-%d", l.index), Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress,
			Priority: nftables.ChainPriorityMangle, Policy: &policy, Device: l.name,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: setMark(l.mark)})
	}
}

// markPackets updates the tables so that they map packets to classes.
func (r *round) markPackets(p *plan.Plan) {
	s := r.finder.find(p.Marks, r.links.observed)
	r.out.Missing += s.missing
	for _, err := range s.errs {
		r.fail(nameTables, "marks", err)
	}
	rules := ruleset{cgroups: s.cgroups, links: s.links, targets: p.Targets}
	if r.lacksSocketMatch {
		rules.cgroups = nil
		if len(s.cgroups) > 0 {
			r.failOnce(nameTables, "sockets", noSocketText)
		}
	}
	if r.Hierarchy != nil && r.Hierarchy.Unified() == "" && len(p.Marks) > 0 {
		r.failOnce(nameTables, "sockets", "unavailable: no cgroup version 2 is mounted: packets of processes in the host's network namespace keep the default class")
	}
	for _, f := range []family{inet, netdev} {
		r.updateTable(f, &rules)
	}
}

const noSocketText = "unavailable: the kernel has no nftables socket expression (Linux 5.13): packets of processes in the host's network namespace keep the default class"

// updateTable reconciles one of the tables.
func (r *round) updateTable(f family, rules *ruleset) {
	name := nameTables + "/" + f.name
	desired := rules.comment(f)
	observed, isExternal, err := r.tables.stateOf(f)
	switch {
	case isMissing(err):
		if desired != "" {
			r.failOnce(name, "", "unavailable: the kernel has no nftables of this family: packets keep the default class")
		}
	case err != nil && desired == "": // nothing is desired, so a failed read needs no report
	case err != nil:
		r.fail(name, "", fmt.Errorf("list the tables: %w", explain(err)))
	case isExternal:
		r.failOnce(name, "", fmt.Sprintf("not changed: another program created the table %s %s: it has no comment of Polder", f.name, tableName))
	case observed == desired:
		if desired != "" {
			r.out.Unchanged++
		}
	default:
		r.replaceTable(f, name, observed, desired, rules)
	}
}

func (r *round) replaceTable(f family, name, observed, desired string, rules *ruleset) {
	var err error
	switch {
	case r.DryRun:
	case desired == "":
		err = r.tables.remove(f)
	default:
		if err = r.Journal.recordTable(f.name); err == nil {
			err = r.tables.set(f, rules, desired)
		}
	}
	if err != nil && f == inet && len(rules.cgroups) > 0 && isMissing(err) {
		r.lacksSocketMatch = true
		r.failOnce(name, "sockets", noSocketText)
		linksOnly := *rules
		linksOnly.cgroups = nil
		r.updateTable(f, &linksOnly)
		return
	}
	if err != nil {
		r.fail(name, "table", explain(err))
		return
	}
	r.addWrite(name, "table", strings.TrimPrefix(observed, commentPrefix), rules.describe(f, desired))
}

// describe describes a table for messages.
func (s *ruleset) describe(f family, comment string) string {
	switch {
	case comment == "":
		return ""
	case f == netdev:
		return fmt.Sprintf("%d links into pods", len(s.links))
	}
	return fmt.Sprintf("%d cgroups, %d classes", len(s.cgroups), len(s.targets))
}

// errExternal means that a table of Polder's name belongs to another program.
var errExternal = errors.New("another program created it: it has no comment of Polder")
