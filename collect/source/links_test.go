package source

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"polder/collect/host"
	"polder/lib/tick"
)

// Links have their rates between two readings, default routes of both versions of IP, and the speed that the driver reports.
func TestLinks(t *testing.T) {
	m := newMachine(t)
	h := m.host()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	env := &Env{Host: h, Now: func() time.Time { return now }}
	c := &clock{host: h, now: env.Now}
	r := Links.New(env)
	uptime := 1000.0
	read := func(rescan bool) ([]tick.Link, error) {
		m.write("proc/uptime", fmt.Sprintf("%.2f 1.00\n", uptime))
		c.startRound()
		round := Round{Sample: &tick.Sample{}, Rescan: rescan, Clock: c}
		err := r.Read(&round)
		return round.Sample.Links, err
	}
	if got, err := read(true); got != nil || err != nil {
		t.Fatalf("a machine without /proc/net: %+v, %v", got, err)
	}
	device := func(received, sent int) {
		m.write("proc/net/dev", "Inter-|   Receive                                                |  Transmit\n"+
			" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"+
			"    lo:    7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"+
			fmt.Sprintf(" vethx: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0:%d 1 0 0 0 0 0 0 %d 1 0 0 0 0 0 0\n  tun6: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n", received, sent))
	}
	device(1000, 2000)
	m.write("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"+
		"eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\nvethx\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	m.write("proc/net/ipv6_route", "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe80000000000000 00000400 00000001 00000000 00000003     tun6\n"+
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n")
	m.write("sys/class/net/eth0/speed", "10000\n")
	m.write("sys/class/net/tun6/speed", "-1\n")
	m.write("sys/class/net/lo/ifindex", "1\n")
	m.write("sys/class/net/bonding_masters", "\n")
	if first, err := read(true); err != nil || len(first) != 3 || first[0].SpeedBitsPerSecond != nil {
		t.Errorf("/sys/class/net without vethx, so of another network namespace: %+v, %v; want links without speeds", first, err)
	}
	m.write("sys/class/net/vethx/ifindex", "3\n")
	first, err := read(true)
	if err != nil || len(first) != 3 {
		t.Fatalf("links %+v, %v", first, err)
	}
	eth0 := first[0]
	if eth0.Name != "eth0" || !eth0.DefaultRoute || eth0.SpeedBitsPerSecond == nil || *eth0.SpeedBitsPerSecond != 1e10 || eth0.SentBytesPerSecond != nil {
		t.Errorf("first reading %+v; want eth0, an uplink of 10 Gbit/s without rates", eth0)
	}
	if first[1].Name != "tun6" || !first[1].DefaultRoute || first[1].SpeedBitsPerSecond != nil || first[2].DefaultRoute {
		t.Errorf("others %+v", first[1:])
	}
	uptime, now = uptime+10, now.Add(10*time.Second)
	device(1500, 3000)
	second, err := read(false)
	if err != nil || len(second) != 3 || *second[0].ReceivedBytesPerSecond != 50 || *second[0].SentBytesPerSecond != 100 {
		t.Errorf("second reading %+v, %v; want 50 and 100 bytes a second", second, err)
	}
	uptime, now = uptime+10, now.Add(10*time.Second)
	device(3, 4) // counters that decreased: the link was removed and created again
	if third, err := read(false); err != nil || third[0].SentBytesPerSecond != nil {
		t.Errorf("after the counters decreased: %+v, %v", third, err)
	}
	if err := errors.Join(os.Remove(m.root+"/proc/net/route"), os.Mkdir(m.root+"/proc/net/route", 0o755)); err != nil {
		t.Fatal(err)
	}
	if got, err := read(true); err == nil || len(got) != 3 || got[0].Name != "eth0" || !got[0].DefaultRoute {
		t.Errorf("while the routes cannot be read: %+v, %v; want an error, and the uplinks as last read", got, err)
	}
	// The links are those of the machine's first process, whatever namespace collect is in.
	m.write("proc/1/net/dev", "a\nb\n  host0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n")
	if got, err := read(false); err != nil || len(got) != 1 || got[0].Name != "host0" {
		t.Errorf("the first process's: %+v, %v", got, err)
	}
	m.write("proc/1/net/dev", "")
	if err := os.Remove(m.root + "/proc/1/net/dev"); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"a\nb\nno colon\n", "a\nb\n../x: 1 1 0 0 0 0 0 0 7\n", "a\nb\neth0: x\n"} {
		m.write("proc/net/dev", bad)
		if got, err := read(true); err == nil || len(got) > 0 {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	if host.IsLinkName(strings.Repeat("x", 16)) || host.IsLinkName("..") || host.IsLinkName("a/b") || !host.IsLinkName("br-1a2b3c4d") {
		t.Error("names of links")
	}
}
