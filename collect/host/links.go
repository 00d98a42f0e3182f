package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"polder/lib/kernfile"
)

// Link is what /proc/net/dev counts of one network link.
type Link struct {
	Name                     string
	ReceivedBytes, SentBytes uint64
}

// maxLinkName is the longest name that a link can have (IFNAMSIZ, without its end).
const maxLinkName = unix.IFNAMSIZ - 1

// IsLinkName reports whether a text can be a link's name: the kernel accepts neither slashes nor blanks, and a name that is a path would
// lead out of its directory.
func IsLinkName(name string) bool {
	return name != "" && len(name) <= maxLinkName && name != "." && name != ".." && !strings.ContainsFunc(name, func(c rune) bool {
		return c == '/' || c == ':' || c <= ' ' || c == 0x7f
	})
}

// readNet reads a file of /proc/net: that of the machine's first process, whatever network namespace collect is in (a unit's with
// PrivateNetwork=yes, a pod's). Any user may read it. Where that process is hidden (hidepid) it is collect's own.
func (h *Host) readNet(name string) ([]byte, error) {
	if data, err := h.read("proc/1/net/" + name); err == nil {
		return data, nil
	}
	return h.read("proc/net/" + name)
}

// SeesLinks reports whether /sys/class/net has exactly these links and the loopback. The directory shows the links of the network namespace
// in which it was mounted: a pod's may have another eth0, with another speed.
func (h *Host) SeesLinks(links []Link) bool {
	found, err := os.ReadDir(h.Path("sys/class/net"))
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	for _, entry := range found {
		if name := entry.Name(); name != "lo" && !entry.Type().IsRegular() { // bonding_masters is a file
			seen[name] = true
		}
	}
	return len(seen) == len(links) && !slices.ContainsFunc(links, func(l Link) bool { return !seen[l.Name] })
}

// Links reads the machine's links, without the loopback, into into, which it empties first and returns.
func (h *Host) Links(into []Link) ([]Link, error) {
	data, err := h.readNet("dev")
	if err != nil {
		return into[:0], fmt.Errorf("read links: %w", err)
	}
	return ParseLinks(data, into)
}

// columnSentBytes is the column of the bytes sent; the bytes received are column 0.
const columnSentBytes = 8

// ParseLinks parses /proc/net/dev: two lines of heading, then a link a line.
func ParseLinks(data []byte, into []Link) ([]Link, error) {
	into = into[:0]
	for n := 0; len(data) > 0; n++ {
		var line []byte
		if line, data = kernfile.Line(data); n < 2 || len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		name, rest, found := bytes.Cut(line, []byte(":"))
		if name = bytes.TrimSpace(name); !found || !IsLinkName(string(name)) {
			return into[:0], fmt.Errorf("read links: line %q has no link name", kernfile.Clip(line))
		}
		l := Link{Name: string(name)}
		for column := 0; column <= columnSentBytes; column++ {
			var field []byte
			field, rest = kernfile.Field(rest)
			v, ok := kernfile.Uint(field)
			if !ok {
				return into[:0], fmt.Errorf("read links: %s: %q is not a number", l.Name, kernfile.Clip(field))
			}
			switch column {
			case 0:
				l.ReceivedBytes = v
			case columnSentBytes:
				l.SentBytes = v
			}
		}
		if l.Name != "lo" {
			into = append(into, l)
		}
	}
	return into, nil
}

// DefaultRoutes are the links of the default routes of IPv4 and IPv6.
func (h *Host) DefaultRoutes() (map[string]bool, error) {
	links := map[string]bool{}
	var errs []error
	for name, parse := range map[string]func([]byte, map[string]bool){"route": parseRoutes, "ipv6_route": parseRoutes6} {
		data, err := h.readNet(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a kernel without that version of IP
		case err != nil:
			errs = append(errs, fmt.Errorf("read routes: %w", err))
		default:
			parse(data, links)
		}
	}
	return links, errors.Join(errs...)
}

// parseRoutes takes the default routes of /proc/net/route: "eth0 00000000 0102A8C0 0003 0 0 0 00000000 …", with the destination in the
// second column and its mask in the eighth.
func parseRoutes(data []byte, into map[string]bool) {
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) > 7 && string(f[1]) == "00000000" && string(f[7]) == "00000000" && IsLinkName(string(f[0])) && up(f[3]) {
			into[string(f[0])] = true
		}
	}
}

// parseRoutes6 takes those of /proc/net/ipv6_route, whose first two columns are the destination and its length, and whose last two are
// flags and link. The kernel lists a default route of its own there, on the loopback, that rejects.
func parseRoutes6(data []byte, into map[string]bool) {
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) > 9 && len(bytes.Trim(f[0], "0")) == 0 && string(f[1]) == "00" && IsLinkName(string(f[9])) && string(f[9]) != "lo" && up(f[8]) {
			into[string(f[9])] = true
		}
	}
}

// up reports whether a route is in use, by its flags in hexadecimal digits.
func up(flags []byte) bool {
	n, err := strconv.ParseUint(string(flags), 16, 64)
	return err == nil && n&unix.RTF_UP != 0 && n&unix.RTF_REJECT == 0
}

// LinkSpeed is a link's speed as its driver reports it, in bits per second; false where it reports none, as for a link that is down and
// for most virtual ones.
func (h *Host) LinkSpeed(name string) (bitsPerSecond uint64, known bool) {
	if !IsLinkName(name) {
		return 0, false
	}
	data, err := h.read("sys/class/net/" + name + "/speed") // in Mbit/s, or -1; the read itself fails while the link is down
	if err != nil {
		return 0, false
	}
	megabits, ok := kernfile.UintLine(data)
	if !ok || megabits == 0 || megabits > 1e9 {
		return 0, false
	}
	return megabits * 1_000_000, true
}
