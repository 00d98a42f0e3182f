package kernfile

import "path/filepath"

// BootID returns the boot ID; it is empty if it cannot be read. root is the root directory of the machine.
func BootID(root string) string {
	data, err := Read(filepath.Join("/", root, "proc/sys/kernel/random/boot_id"), nil)
	if err != nil {
		return ""
	}
	return string(Text(data))
}
