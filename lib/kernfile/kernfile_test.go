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
			for name, read := range map[string]func(string, []byte) ([]byte, error){"Read": Read, "ReadPiece": ReadPiece} {
				got, err := read(path, buf)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s of %d bytes into %d = %d bytes, %v", name, size, len(buf), len(got), err)
				}
			}
		}
	}
	if _, err := Read(path+".missing", nil); !os.IsNotExist(err) {
		t.Errorf("Read of a missing file: %v; want that it does not exist", err)
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"0-3\n": "0-3", "0-3\n\x00": "0-3", "0-3\x00": "0-3", "0-3\x00\x00\n": "0-3", "\n\x00": "", "": "", " 7 \n": "7", "a b\r\n": "a b",
		"0\x001\n": "0\x001", "\x000\n": "\x000", // not at the end: no kernel writes that
	} {
		if got := string(Text([]byte(in))); got != want {
			t.Errorf("Text(%q) = %q; want %q", in, got, want)
		}
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(in), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadText(path); got != want || err != nil {
			t.Errorf("ReadText of %q = %q, %v; want %q", in, got, err, want)
		}
	}
	if n, ok := UintLine([]byte("42\n\x00")); n != 42 || !ok {
		t.Errorf("UintLine with a NUL byte = %d, %v; want 42", n, ok)
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
