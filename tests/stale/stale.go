// Package stale removes what killed tests left behind.
package stale

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Name begins the name of a file or directory of this process: the prefix and the process's number.
func Name(prefix string) string { return fmt.Sprintf("%s%d-", prefix, os.Getpid()) }

// Remove calls remove with the path of all in a directory whose name begins as [Name] makes it, for a process that has ended.
func Remove(dir, prefix string, remove func(path string) error) error {
	found, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range found {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		pid, err := strconv.Atoi(text)
		if err != nil || syscall.Kill(pid, 0) == nil {
			continue // its test lives
		}
		if err := remove(path); err != nil {
			errs = append(errs, fmt.Errorf("remove what a killed test left: %w", err))
		}
	}
	return errors.Join(errs...)
}
