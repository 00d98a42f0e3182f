// Command sbom writes the bill of materials of Go programs, in CycloneDX's JSON: what each program has in itself names the modules that it
// was built from (go version -m), and a list of Debian packages says what an image has besides.
//
//	sbom -name NAME -version VERSION [-packages FILE] PROGRAM...
//
// The same programs and list give the same bytes: its time is SOURCE_DATE_EPOCH's.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	name := flag.String("name", "", "what it is the bill of")
	version := flag.String("version", "", "its version")
	packages := flag.String("packages", "", "Debian packages: a name, a version and an architecture a line")
	flag.Parse()
	if err := run(os.Stdout, *name, *version, *packages, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bill is what is found.
type bill struct {
	modules  map[string]cdx.Component // by their references
	programs []cdx.Component
	needs    []cdx.Dependency
}

func run(out io.Writer, name, version, packages string, programs []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	b := bill{modules: map[string]cdx.Component{}}
	for _, path := range programs {
		if err := b.program(path); err != nil {
			return err
		}
	}
	if packages != "" {
		if err := b.debian(packages); err != nil {
			return err
		}
	}
	byRef := func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) }
	components := append(b.programs, slices.SortedFunc(maps.Values(b.modules), byRef)...)
	bom := cdx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cdx.Metadata{
		Timestamp: time.Unix(epoch, 0).UTC().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version},
	}
	bom.Components, bom.Dependencies = &components, &b.needs
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// program adds a program and the modules that it was built from.
func (b *bill) program(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	platform := map[string]string{}
	for _, s := range info.Settings {
		platform[s.Key] = s.Value
	}
	name := filepath.Base(path)
	ref := name + "-" + platform["GOOS"] + "-" + platform["GOARCH"]
	b.programs = append(b.programs, cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: name, Description: platform["GOOS"] + "/" + platform["GOARCH"],
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	})
	needs := []string{b.module("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		needs = append(needs, b.of(m))
	}
	slices.Sort(needs)
	b.needs = append(b.needs, cdx.Dependency{Ref: ref, Dependencies: &needs})
	return nil
}

// of adds a module, or what replaces it.
func (b *bill) of(m *debug.Module) string {
	for m.Replace != nil {
		m = m.Replace
	}
	return b.module(m.Path, m.Version, m.Sum)
}

func (b *bill) module(path, version, sum string) string {
	ref := "pkg:golang/" + path + "@" + version
	c := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: ref}
	if sum != "" { // of a module's files, as go.sum has it: no hash of CycloneDX's
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	b.modules[ref] = c
	return ref
}

// debian adds packages.
func (b *bill) debian(list string) error {
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return fmt.Errorf("%s: %q: want a name, a version and an architecture", list, line)
		}
		ref := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", f[0], strings.ReplaceAll(f[1], "+", "%2B"), f[2])
		b.modules[ref] = cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: f[0], Version: f[1], PackageURL: ref}
	}
	return nil
}
