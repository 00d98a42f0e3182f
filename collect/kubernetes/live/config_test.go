package live

import (
	"testing"

	"polder/lib/customconfig"
)

// A configuration of which a part was never read is not saved: the next run would take it for the whole.
func TestPartOfAConfigIsNotSaved(t *testing.T) {
	part := map[string]*customconfig.Chosen{"adminqosconfigurations": {}}
	c := &Cluster{}
	c.config.last = part
	if got := c.SaveConfig(); got != nil {
		t.Errorf("saved %v; want nothing", got)
	}
	c.LoadConfig(part)
	if got := c.SaveConfig(); len(got) != 1 {
		t.Errorf("saved %v; want what an earlier run had in force", got)
	}
}
