package tick

import "strings"

// IsWithin reports whether a cgroup is the parent or below it.
func IsWithin(cgroup, parent string) bool { return cgroup == parent || IsBelow(cgroup, parent) }

// IsBelow reports whether a cgroup is below the parent, at any depth. All others are below the root; an empty parent counts as the root.
func IsBelow(cgroup, parent string) bool {
	parent = strings.TrimSuffix(parent, "/")
	return strings.HasPrefix(cgroup, parent) && len(cgroup) > len(parent)+1 && cgroup[len(parent)] == '/'
}
