package disks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree creates files under a root for the test; content "-> TARGET" creates a link, and a path that ends with a slash a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case isLink:
			err = os.Symlink(target, at)
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(content+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// machine has a disk with a partition, a volume of device mapper on it, a loop device with a file and one without, and a disk with
// an invalid device number.
func machine(t *testing.T) string {
	return tree(t, map[string]string{
		"sys/devices/pci/block/vda/dev":            "254:0",
		"sys/devices/pci/block/vda/size":           "100",
		"sys/devices/pci/block/vda/device/":        "",
		"sys/devices/pci/block/vda/vda1/dev":       "254:1",
		"sys/devices/pci/block/vda/vda1/partition": "1",
		"sys/devices/virtual/block/dm-0/dev":       "253:0",
		"sys/devices/virtual/block/dm-0/size":      "90",
		"sys/devices/virtual/block/dm-0/slaves/":   "",
		"sys/devices/virtual/block/dm-0/slaves/x":  "-> ../../../../pci/block/vda",
		"sys/devices/virtual/block/loop0/dev":      "7:0",
		"sys/devices/virtual/block/loop0/size":     "8",
		"sys/devices/virtual/block/loop1/dev":      "7:1",
		"sys/devices/virtual/block/loop1/size":     "0",
		"sys/devices/virtual/block/odd/dev":        "254:0 max",
		"sys/block/vda":                            "-> ../devices/pci/block/vda",
		"sys/block/dm-0":                           "-> ../devices/virtual/block/dm-0",
		"sys/block/loop0":                          "-> ../devices/virtual/block/loop0",
		"sys/block/loop1":                          "-> ../devices/virtual/block/loop1",
		"sys/block/odd":                            "-> ../devices/virtual/block/odd",
		"sys/dev/block/254:0":                      "-> ../../devices/pci/block/vda",
		"sys/dev/block/254:1":                      "-> ../../devices/pci/block/vda/vda1",
		"sys/dev/block/253:0":                      "-> ../../devices/virtual/block/dm-0",
		"proc/self/mountinfo": strings.Join([]string{
			"22 1 254:1 / / rw - ext4 /dev/vda1 rw",
			"23 22 0:21 / /proc rw - proc proc rw",
			`24 22 253:0 / /var/lib/with\040blank rw - xfs /dev/dm-0 rw`,
			"25 22 254:1 /x /over rw - ext4 /dev/vda1 rw",
			"26 22 0:30 / /over rw - tmpfs tmpfs rw",
			"27 22 8:1 / /gone rw - ext4 /dev/sda1 rw",
			"28 22 0:31 / /odd rw - btrfs /dev/../etc/passwd rw",
		}, "\n"),
	})
}

func TestList(t *testing.T) {
	got, err := List(machine(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []Disk{
		{Name: "dm-0", Device: "253:0", Stacked: true},
		{Name: "loop0", Device: "7:0", Stacked: true},
		{Name: "loop1", Device: "7:1", Stacked: true, Empty: true},
		{Name: "vda", Device: "254:0", Real: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("List (-want +got):\n%s", d)
	}
	if got, err := List(t.TempDir()); got != nil || err != nil {
		t.Errorf("List of a machine without /sys/block = %v, %v; want nothing", got, err)
	}
}

func TestMounts(t *testing.T) {
	got, err := Mounts(machine(t))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/": "254:0", "/var/lib/with blank": "253:0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Mounts (-want +got):\n%s", d)
	}
}

// The list of this machine contains the disk of its root directory, if there is one.
func TestThisMachine(t *testing.T) {
	list, err := List("/")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := Mounts("/")
	if err != nil {
		t.Fatal(err)
	}
	byDevice := map[string]string{}
	for _, d := range list {
		byDevice[d.Device] = d.Name
	}
	for at, device := range mounts {
		if byDevice[device] == "" {
			t.Errorf("%s is on %s, which is not among the disks %v", at, device, list)
		}
	}
	t.Logf("%v, %v", list, mounts)
}

func TestIsDevice(t *testing.T) {
	for text, want := range map[string]bool{
		"254:0": true, "8:16": true, "259:1048575": true,
		"": false, ":": false, "8": false, "8:": false, "8:1:2": false, "08:1": false, "8:1 rbps=max": false, "8:1\n": false, "-8:1": false, "99999999:1": false,
	} {
		if got := IsDevice(text); got != want {
			t.Errorf("IsDevice(%q) = %v", text, got)
		}
	}
}
