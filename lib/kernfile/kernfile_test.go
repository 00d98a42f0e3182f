package kernfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, buf := range [][]byte{nil, make([]byte, 10), make([]byte, 4096)} {
			got, err := Read(path, buf)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Read of %d bytes into %d = %d bytes, %v", size, len(buf), len(got), err)
			}
		}
	}
	if _, err := Read(path+".missing", nil); !os.IsNotExist(err) {
		t.Errorf("Read of a missing file: %v; want that it does not exist", err)
	}
}

func TestUint(t *testing.T) {
	tests := []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"0", 0, true},
		{"007", 7, true},
		{"18446744073709551615", 1<<64 - 1, true},
		{"18446744073709551616", 0, false},
		{"99999999999999999999", 0, false},
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1 ", 0, false},
		{"max", 0, false},
	}
	for _, tt := range tests {
		if got, ok := Uint([]byte(tt.in)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("Uint(%q) = %d, %v; want %d, %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}
