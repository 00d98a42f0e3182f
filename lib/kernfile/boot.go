package kernfile

import "path/filepath"

// BootID identifies the boot; it is empty where it cannot be read. root is the machine's.
func BootID(root string) string {
	data, err := Read(filepath.Join("/", root, "proc/sys/kernel/random/boot_id"), nil)
	if err != nil {
		return ""
	}
	return string(Text(data))
}
