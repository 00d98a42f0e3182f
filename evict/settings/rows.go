package settings

import (
	"fmt"
	"strings"
	"time"

	"polder/evict/rule"
	"polder/lib/clip"
	"polder/lib/evictconfig"
	"polder/lib/stage"
)

// AddRows adds a flag for each row of a table of settings.
func AddRows(f *stage.Flags, rows []evictconfig.Row) {
	for _, row := range rows {
		switch p := row.Into.(type) {
		case *float64:
			f.Float(p, row.Name, *p, row.Usage)
		case *int:
			f.Int(p, row.Name, *p, row.Usage)
		case *bool:
			f.OnOff(p, row.Name, *p, row.Usage)
		case *time.Duration:
			f.Duration(p, row.Name, *p, row.Usage)
		case *evictconfig.Bytes:
			f.Value(p, row.Name, p.String(), row.Usage)
		case *[]string:
			f.Strings(p, row.Name, row.Usage)
			if row.Name == "rules" || row.Name == "dry-run-rules" {
				f.Words(rule.Names()...)
			}
		}
	}
}

// Pointers returns the rows' values by name, into which a configuration file is read.
func Pointers(rows []evictconfig.Row) map[string]any {
	into := map[string]any{}
	for _, row := range rows {
		into[row.Name] = row.Into
	}
	return into
}

// MergeRows writes the command line's values over rows in which a file has set those with a line, and returns the source of each.
func MergeRows(s *stage.Session, rows, given []evictconfig.Row, path string, lines map[string]int) map[string]string {
	from := map[string]string{}
	for i, row := range rows {
		from[row.Name] = FromDefault
		if s.IsSet(row.Name) {
			row.Copy(given[i])
			from[row.Name] = fromFlag
		} else if line := lines[row.Name]; line > 0 {
			from[row.Name] = fmt.Sprintf("%s:%d", path, line)
		}
	}
	return from
}

// CheckRows names the source of each setting that check rejects.
func CheckRows(from map[string]string, check func(report func(name string, why error))) (errs []error) {
	check(func(name string, why error) {
		if source := from[name]; source == fromFlag || source == FromDefault {
			errs = append(errs, fmt.Errorf("--%s: %w", name, why))
		} else {
			errs = append(errs, fmt.Errorf("%s: %s: %w", source, name, why))
		}
	})
	return errs
}

// WriteRows writes settings with their values and sources, in columns.
func WriteRows(b *strings.Builder, rows []evictconfig.Row, from map[string]string) {
	nameWidth, valueWidth := 31, 6
	for _, row := range rows {
		nameWidth, valueWidth = max(nameWidth, len(row.Name)), max(valueWidth, len(row.Show()))
	}
	for _, row := range rows {
		fmt.Fprintf(b, "  %-*s %-*s %s\n", nameWidth, row.Name, valueWidth, row.Show(), clip.Clean(from[row.Name]))
	}
}
