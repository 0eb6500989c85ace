package login_test

import (
	"strings"
	"testing"
)

// TestSignInMetrics: credentials are counted by kind and outcome.
func TestSignInMetrics(t *testing.T) {
	x := sqlite(t)
	b := x.browser(t)
	b.signIn()
	_, flow, _ := strings.Cut(x.browser(t).get("/signin").location, "flow=")
	x.browser(t).password(flow, ownerEmail, "not the password")
	other := x.browser(t)
	_, flow, _ = strings.Cut(other.get("/signin").location, "flow=")
	other.password(flow, ownerEmail, "not the password")
	families, err := x.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "holdfast_signins_total" {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if got["password ok"] != 1 || got["password denied"] != 1 || got["password failed"] != 0 {
		t.Errorf("counted: %v", got)
	}
	if n, ok := got["passkey denied"]; !ok || n != 0 {
		t.Errorf("passkeys that were refused: %v %t", n, ok)
	}
}
