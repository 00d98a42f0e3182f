package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"polder/lib/kernfile"
	"polder/lib/tick"
)

// stateFile is the envelope of every state file.
type stateFile struct {
	Tool    string `json:"tool"`
	Version int    `json:"version"`
	// Boot is the ID of the boot in which the state was saved.
	Boot  string   `json:"boot,omitempty"`
	State tick.Raw `json:"state"`
}

// Boot says whether a state was saved in the present boot.
type Boot int

// These are the values of Boot. It is unknown if the state has no ID, as an earlier version's, or if the present one cannot be read.
const (
	UnknownBoot Boot = iota
	SameBoot
	OtherBoot
)

// bootVariable contains the boot ID if /proc does not: a unit with ProcSubset=pid sets it to systemd's %b.
const bootVariable = "POLDER_BOOT_ID"

// bootID returns the present boot's ID.
func (s *Session) bootID() string {
	if id := kernfile.BootID("/"); id != "" {
		return id
	}
	if s.Getenv == nil {
		return ""
	}
	return s.Getenv(bootVariable)
}

func bootOf(saved, now string) Boot {
	plain := func(id string) string { return strings.ReplaceAll(id, "-", "") } // systemd writes it without dashes
	switch {
	case saved == "" || now == "":
		return UnknownBoot
	case plain(saved) == plain(now):
		return SameBoot
	}
	return OtherBoot
}

// LoadState reads the tool's state from --state into v, and records in [Session.StateBoot] whether it is from the present boot:
// processes, cgroups and counters of another boot no longer exist, and their names may denote others. Without a valid state (no --state,
// no file yet, or an incomplete file or one of another version, which is logged) it returns false and does not change v.
func (s *Session) LoadState(version int, v any) (bool, error) {
	if s.State == "" {
		return false, nil
	}
	data, err := os.ReadFile(s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read --state: %w", err)
	}
	if !utf8.Valid(data) { // the decoder would accept it, and the tool's section would not be JSON
		s.Log.Warn("state file is not readable, starting without it", "path", s.State, "error", "not UTF-8")
		return false, nil
	}
	var file stateFile
	if err := tick.Unmarshal(data, &file); err != nil {
		s.Log.Warn("state file is not readable, starting without it", "path", s.State, "error", err)
		return false, nil
	}
	if file.Tool != s.Tool || file.Version != version {
		s.Log.Warn("state file is of another tool or version, or of another policy, starting without it", "path", s.State, "tool", file.Tool, "version", file.Version, "want", version)
		return false, nil
	}
	if err := tick.Unmarshal(file.State, v); err != nil {
		s.Log.Warn("state file is not readable, starting without it", "path", s.State, "error", err)
		return false, nil
	}
	s.StateBoot = bootOf(file.Boot, s.bootID())
	return true, nil
}

// SaveState writes the tool's state to --state, atomically.
func (s *Session) SaveState(version int, v any) error {
	if s.State == "" {
		return nil
	}
	state, err := tick.Marshal(v)
	if err != nil {
		return fmt.Errorf("write --state %s: %w", s.State, err)
	}
	data, err := tick.Marshal(stateFile{Tool: s.Tool, Version: version, Boot: s.bootID(), State: state})
	if err != nil {
		return fmt.Errorf("write --state %s: %w", s.State, err)
	}
	if err := writeFileSync(s.State, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write --state: %w", err)
	}
	return nil
}

// WriteFile replaces path by data atomically: readers see the old content or the new one.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, func(*os.File) error { return nil })
}

// writeFileSync is like WriteFile, for data that must survive a crash of the machine.
func writeFileSync(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, (*os.File).Sync)
}

func replace(path string, data []byte, mode fs.FileMode, sync func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := sync(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
