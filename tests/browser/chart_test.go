package browser

import (
	"path/filepath"
	"testing"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
)

// The chart of docs/colocation.md is drawn as a person reads it: no text is cut off or covers another one, and each dot has the colour of a
// method in the legend and a text under the pointer.
func TestColocationChartInABrowser(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("../../docs/colocation.svg")
	if err != nil {
		t.Fatal(err)
	}
	x := open(t)
	x.do(t, cdplog.Enable(), chromedp.Navigate("file://"+path))
	x.until(t, `document.querySelectorAll('circle').length > 0`)
	var problems []string
	x.do(t, chromedp.Evaluate(`(() => {
		const problems = [], texts = [...document.querySelectorAll('text')];
		const image = document.documentElement.getBoundingClientRect();
		const boxes = texts.map(e => e.getBoundingClientRect());
		const isOutside = b => b.left < image.left || b.right > image.right || b.top < image.top || b.bottom > image.bottom;
		boxes.forEach((b, i) => {
			if (b.width === 0 || isOutside(b)) problems.push('cut off: ' + texts[i].textContent);
			boxes.slice(i + 1).forEach((c, j) => {
				if (b.left < c.right && c.left < b.right && b.top < c.bottom && c.top < b.bottom)
					problems.push(texts[i].textContent + ' and ' + texts[i + 1 + j].textContent + ' overlap');
			});
		});
		const circles = [...document.querySelectorAll('circle')], dots = circles.filter(c => c.querySelector('title'));
		const legend = new Set(circles.filter(c => !c.querySelector('title')).map(c => c.getAttribute('fill')));
		if (legend.size < 4 || dots.length < 10 * legend.size) problems.push(legend.size + ' methods with ' + dots.length + ' dots');
		for (const dot of dots) {
			if (isOutside(dot.getBoundingClientRect())) problems.push('outside: ' + dot.textContent);
			if (!legend.has(dot.getAttribute('fill'))) problems.push('without a method: ' + dot.textContent);
		}
		return problems;
	})()`, &problems))
	for _, problem := range problems {
		t.Error(problem)
	}
	x.picture(t, "colocation")
	if reported := x.errors(); len(reported) > 0 {
		t.Errorf("the browser reported %q", reported)
	}
}
