package page

import (
	"crypto/sha256"
	_ "embed" // of the page's parts
	"encoding/base64"
	"fmt"
	"io"
)

//go:embed page.html
var body string

//go:embed page.css
var style string

//go:embed page.js
var program string

// The library that draws the charts, with its licence.
var (
	//go:embed dygraphs/dygraph.min.js
	library string
	//go:embed dygraphs/dygraph.min.css
	libraryStyle string
	//go:embed dygraphs/LICENSE
	licence string
)

// Policy is the page's Content-Security-Policy: only its own two programs run, whatever is in the data. A live page may connect to
// its own origin.
func Policy(live bool) string {
	connect := "'none'"
	if live {
		connect = "'self'"
	}
	return fmt.Sprintf("default-src 'none'; script-src '%s' '%s'; style-src 'unsafe-inline'; img-src data:; connect-src %s; base-uri 'none'; form-action 'none'",
		hash(library), hash(program), connect)
}

func hash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Write writes the page of a recording.
func (r *Recording) Write(out io.Writer) error {
	data, err := r.Data(false)
	if err != nil {
		return err
	}
	return Write(out, data, false)
}

// Write writes the page around its data, which is the only part that comes from a recording.
func Write(out io.Writer, data []byte, live bool) error {
	for _, part := range []string{
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
		"<meta http-equiv=\"Content-Security-Policy\" content=\"", Policy(live), "\">\n",
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Polder</title>\n<link rel=\"icon\" href=\"data:,\">\n",
		"<!-- ", licence, " -->\n<style>\n", libraryStyle, "\n", style, "</style>\n</head>\n<body>\n", body,
		"<script type=\"application/json\" id=\"data\">", string(data), "</script>\n",
		"<script>", library, "</script>\n<script>", program, "</script>\n</body>\n</html>\n",
	} {
		if _, err := io.WriteString(out, part); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	return nil
}
