package orgfile

import (
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
)

// usedDays is the number of days in which the server counts used capabilities.
const usedDays = 90

// consequences describes the effects of a plan on access. It says so if they are not known.
func consequences(p *comparison) []string {
	switch {
	case len(p.Changes) == 0:
		return nil
	case p.checked == nil && p.refusal == "":
		return nil // check has failed, and its error is reported
	case p.checked == nil:
		return []string{"the consequences are not known: " + p.refusal}
	}
	c := p.checked.GetConsequences()
	lines := noun.Describe(asSimulated(c), usedDays)
	for i := range lines {
		lines[i] = p.state.Named(lines[i])
	}
	switch c.GetOwners() {
	case 0:
		lines = append(lines, "the organization would have no permanent owner")
	case 1:
		lines = append(lines, "the organization would have 1 permanent owner")
	default:
		lines = append(lines, fmt.Sprintf("the organization would have %d permanent owners", c.GetOwners()))
	}
	if len(c.GetNotComputed()) > 0 {
		lines = append(lines, "not computed: "+strings.ToLower(strings.Join(c.GetNotComputed(), ", ")))
	}
	return lines
}

// asSimulated returns consequences in the form of a simulation, which has the same fields.
func asSimulated(c *organizationpb.Consequences) *accesspb.SimulateResponse {
	return &accesspb.SimulateResponse{
		Gained: c.GetGained(), GainedTotal: c.GetGainedTotal(), GainedHidden: c.GetGainedHidden(),
		GainedIdentities: c.GetGainedIdentities(), Lost: c.GetLost(), LostTotal: c.GetLostTotal(),
		LostHidden: c.GetLostHidden(), LostIdentities: c.GetLostIdentities(), LostUsedTotal: c.GetLostUsedTotal(),
		Workloads: c.GetWorkloads(), WorkloadsTotal: c.GetWorkloadsTotal(), Sessions: c.GetSessions(),
		SessionsTotal: c.GetSessionsTotal(), Pulls: c.GetPulls(), PullsTotal: c.GetPullsTotal(), Reasons: c.GetReasons(),
	}
}
