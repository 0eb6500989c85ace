package registry

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

// rules returns the Noun for rules, which refuse pulls of images with findings or without
// a signature.
func rules() noun.Noun {
	refuses := func(r *findingspb.Rule) string {
		var words []string
		if r.GetUnsigned() {
			return "not signed"
		}
		if s := r.GetMinSeverity(); s != findingspb.Severity_SEVERITY_UNKNOWN {
			least := strings.ToLower(strings.TrimPrefix(s.String(), "SEVERITY_")) + " or worse"
			if r.GetUnknownSeverity() == findingspb.UnknownSeverity_UNKNOWN_SEVERITY_REFUSE {
				least += " or unknown"
			}
			words = append(words, least)
		}
		if r.GetFixable() {
			words = append(words, "fixable")
		}
		if r.GetKev() {
			words = append(words, "known exploited")
		}
		if n := r.GetGraceDays(); n > 0 {
			words = append(words, "after "+noun.Count(n, "day"))
		}
		if len(words) == 0 {
			return "any finding"
		}
		return strings.Join(words, ", ")
	}
	return noun.Noun{
		Area: "findings", Use: "rules", One: "rule",
		Short: "Refuse pulls of images because of their findings or signatures",
		About: "A rule refuses pulls of images with findings that are not excepted. With --unsigned it refuses pulls of\n" +
			"images that no signer has signed. A new rule refuses nothing: check what it would have refused, and then\n" +
			"update it with --mode enforce.",
		Example: "  holdfast findings rules create --parent acme --min-severity critical --fixable --grace-days 14",
		Message: noun.MessageOf(&findingspb.Rule{}),
		Fields: []noun.Field{
			{Flag: "on", Path: "target_uid", Ref: noun.Groups, Help: "only images in `GROUP`, a subgroup of the rule's group"},
			{Flag: "repo", Path: "target_uid", Ref: Repos, Help: "only images of `REPO`, in the rule's group or a subgroup"},
			{Flag: "description", Help: "purpose of the rule"},
			{
				Flag: "min-severity", Read: readSeverity,
				Help: "only findings of this `SEVERITY` or worse: low, medium, high, critical",
			},
			{
				Flag: "unknown-severity",
				Help: "`MODE` for findings of unknown severity: allow or refuse (default: allow with --min-severity, else refuse)",
			},
			{Flag: "fixable", Help: "only findings with a fixed version"},
			{Flag: "kev", Help: "only findings that are known to be exploited"},
			{Flag: "grace-days", Read: readDays("grace_days"), Help: "only findings that were first seen at least `N` days ago"},
			{
				Flag: "exempt", Path: "exempt_uids", Ref: iam.Identities,
				Help: "`IDENTITY` whose pulls are never refused; can be repeated",
			},
			{Flag: "refuse-unknown", Help: "also refuse images whose packages are unknown"},
			{Flag: "unsigned", Help: "refuse images that no signer has signed, regardless of findings"},
			{Flag: "mode", Help: "`MODE`: dry-run, which refuses nothing, or enforce"},
		},
		Columns: output.Columns(output.PathOf("on", "targetUid"), output.Text("refuses", refuses), "mode", "description",
			"uid"),
		Created: output.Columns("unknown severity=unknownSeverity", "cannot refuse=ineffectiveReason"),
		Wide: output.Columns("exemptUids", "refuseUnknown", "unknown severity=unknownSeverity", "createTime",
			"updateTime"),
		Extra: []func(*noun.App) *cobra.Command{rulesCheck},
	}
}

// readSeverity sets the minimum severity.
func readSeverity(m protoreflect.Message, texts []string) error {
	n, ok := findingspb.Severity_value["SEVERITY_"+strings.ToUpper(texts[0])]
	if !ok {
		return fmt.Errorf("%q is not one of low, medium, high, critical, unknown (which means any)", texts[0])
	}
	noun.Put(m, "min_severity", protoreflect.EnumNumber(n))
	return nil
}

// readDays returns a function that sets a field to a number of days.
func readDays(field string) func(protoreflect.Message, []string) error {
	return func(m protoreflect.Message, texts []string) error {
		n, err := strconv.ParseInt(strings.TrimSuffix(texts[0], "d"), 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number of days", texts[0])
		}
		noun.Put(m, field, int32(n))
		return nil
	}
}

func refusedPulls() noun.Noun {
	return noun.Noun{
		Area: "findings", Use: "pulls", One: "pull", Message: noun.MessageOf(&findingspb.RefusedPull{}), ID: "digest",
		Columns: output.Columns("repo", "by=identityUid", "count", "last=lastTime", "reason", "digest"),
		Wide:    output.Columns("repoUid"),
	}
}

func rulesCheck(a *noun.App) *cobra.Command {
	var p noun.Paging
	cmd := &cobra.Command{
		Use: "check UID", Short: "List the pulls of the last 30 days that a rule would refuse now",
		Long: "Lists the pulls of the last 30 days, by image and identity, that the rule would refuse now, whether it\n" +
			"is enforced or not. It changes nothing.",
		Example: "  holdfast findings rules check 41c2bd7f0f6a2c11…/5f3c…",
	}
	p.Register(cmd)
	return a.About(rules(), cmd, func(ctx context.Context, _ *cobra.Command, uid string) error {
		answer, err := a.PrintAnswer(ctx, refusedPulls(), &findingspb.CheckRuleRequest{Uid: uid}, p, without("pulls"))
		if err != nil {
			return err
		}
		m := answer.(*findingspb.CheckRuleResponse)
		a.Note("%s of %s by %s would be refused", noun.Count(m.GetPullCount(), "pull"),
			noun.Count(m.GetImageCount(), "image"), noun.Count(m.GetIdentityCount(), "identity"))
		if reason := m.GetIneffectiveReason(); reason != "" {
			a.Note("this rule cannot refuse anything: %s", reason)
		}
		if m.GetUnknownSeverity() == findingspb.UnknownSeverity_UNKNOWN_SEVERITY_ALLOW {
			a.Note("findings of unknown severity pass (--unknown-severity allow): they let %s pass",
				noun.Count(m.GetUnknownSeverityImageCount(), "image"))
		}
		sayCoverage(a, m.GetCoverage(), "")
		return nil
	})
}
