package vulnapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
)

func ruleOf(r vuln.PullRule) *pb.Rule {
	mode := pb.RuleMode_RULE_MODE_DRY_RUN
	if r.Enforce {
		mode = pb.RuleMode_RULE_MODE_ENFORCE
	}
	return &pb.Rule{
		Uid: string(r.UID), TargetUid: string(r.Target), Description: r.Description,
		MinSeverity: pb.Severity(r.MinSeverity), Fixable: r.Fixable, Kev: r.KEV, GraceDays: r.GraceDays,
		ExemptUids:    wire.Convert(r.Exempt, func(u resource.UID) string { return string(u) }),
		RefuseUnknown: r.RefuseUnknown, Unsigned: r.Unsigned, Mode: mode, CreateTime: wire.Time(r.CreateTime),
		UpdateTime: wire.Time(r.UpdateTime), UnknownSeverity: unknownSeverityOf(r),
	}
}

// unknownSeverityOf returns how a rule treats findings of unknown severity.
func unknownSeverityOf(r vuln.PullRule) pb.UnknownSeverity {
	switch {
	case r.Unsigned:
		return pb.UnknownSeverity_UNKNOWN_SEVERITY_UNSPECIFIED
	case r.RefusesUnknownSeverity():
		return pb.UnknownSeverity_UNKNOWN_SEVERITY_REFUSE
	}
	return pb.UnknownSeverity_UNKNOWN_SEVERITY_ALLOW
}

// unknownSeverities are the ways to treat findings of unknown severity, by their value in the API.
var unknownSeverities = map[pb.UnknownSeverity]vuln.UnknownSeverity{
	pb.UnknownSeverity_UNKNOWN_SEVERITY_UNSPECIFIED: vuln.UnknownSeverityDefault,
	pb.UnknownSeverity_UNKNOWN_SEVERITY_ALLOW:       vuln.UnknownSeverityAllow,
	pb.UnknownSeverity_UNKNOWN_SEVERITY_REFUSE:      vuln.UnknownSeverityRefuse,
}

// withEffect adds to a message why its rule cannot refuse anything at present.
func (s *server) withEffect(ctx context.Context, p *pb.Rule, err error) (*pb.Rule, error) {
	if err != nil {
		return nil, err
	}
	r := vuln.PullRule{UID: resource.UID(p.GetUid())}
	if err := readRule(p, &r); err != nil {
		return nil, err
	}
	p.IneffectiveReason, err = s.Policy.Ineffective(ctx, r)
	return p, err
}

// readRule copies the fields that clients may set from p to r.
func readRule(p *pb.Rule, r *vuln.PullRule) (err error) {
	if r.Target, err = wire.OptionalUID("target_uid", p.GetTargetUid()); err != nil {
		return err
	}
	if _, ok := pb.RuleMode_name[int32(p.GetMode())]; !ok {
		return fault.Field("mode", "%d is not a mode", p.GetMode())
	}
	r.Description, r.MinSeverity, r.Fixable = p.GetDescription(), int32(p.GetMinSeverity()), p.GetFixable()
	r.KEV, r.GraceDays, r.RefuseUnknown = p.GetKev(), p.GetGraceDays(), p.GetRefuseUnknown()
	r.Unsigned = p.GetUnsigned()
	unknown, ok := unknownSeverities[p.GetUnknownSeverity()]
	if !ok {
		return fault.Field("unknown_severity", "%d is not a way to treat unknown severities", p.GetUnknownSeverity())
	}
	r.UnknownSeverity = unknown
	r.Enforce = p.GetMode() == pb.RuleMode_RULE_MODE_ENFORCE
	r.Exempt = wire.Convert(p.GetExemptUids(), func(s string) resource.UID { return resource.UID(s) })
	return nil
}

func (s *server) CreateRule(ctx context.Context, r *pb.CreateRuleRequest) (*pb.Rule, error) {
	p, err := wire.Create(ctx, "parent", r.GetParent(), r.GetRule(), readRule, s.Policy.CreateRule, ruleOf)
	return s.withEffect(ctx, p, err)
}

func (s *server) GetRule(ctx context.Context, r *pb.GetRuleRequest) (*pb.Rule, error) {
	p, err := wire.Get(ctx, "uid", r.GetUid(), s.Policy.GetRule, ruleOf)
	return s.withEffect(ctx, p, err)
}

func (s *server) UpdateRule(ctx context.Context, r *pb.UpdateRuleRequest) (*pb.Rule, error) {
	p, err := wire.Update(ctx, r.GetUpdateMask(), "rule", r.GetRule(), readRule, s.Policy.UpdateRule, ruleOf)
	return s.withEffect(ctx, p, err)
}

func (s *server) DeleteRule(ctx context.Context, r *pb.DeleteRuleRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Policy.DeleteRule)
}

func (s *server) ListRules(ctx context.Context, r *pb.ListRulesRequest) (*pb.ListRulesResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, s.Policy.ListRules, ruleOf)
	for i := range p.Items {
		if p.Items[i], err = s.withEffect(ctx, p.Items[i], err); err != nil {
			return nil, err
		}
	}
	return &pb.ListRulesResponse{Rules: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) CheckRule(ctx context.Context, r *pb.CheckRuleRequest) (*pb.CheckRuleResponse, error) {
	uid, err := wire.OptionalUID("uid", r.GetUid())
	if err == nil && uid == "" && r.GetPageToken() == "" { // without a page token, the UID is required
		err = fault.Field("uid", "is required")
	}
	if err != nil {
		return nil, err
	}
	got, err := s.Policy.CheckRule(ctx, uid, wire.Params(r))
	if err != nil {
		return nil, err
	}
	known, err := s.Findings.Coverage(ctx, !got.Rule.Unsigned, got.Rule.Target)
	if err != nil {
		return nil, err
	}
	p := wire.PageOf(ctx, got.Page, func(p policy.RefusedPull) *pb.RefusedPull {
		return &pb.RefusedPull{RepoUid: string(p.Repo), Repo: p.Path, Digest: p.Digest, IdentityUid: string(p.Identity),
			Count: p.Count, LastTime: wire.Time(p.Last), Reason: p.Reason}
	})
	return &pb.CheckRuleResponse{
		Pulls: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		PullCount: got.Pulls, ImageCount: got.Images, IdentityCount: got.Identities,
		IneffectiveReason: got.Ineffective, UnknownSeverity: unknownSeverityOf(got.Rule),
		UnknownSeverityImageCount: got.Unrated, Coverage: answerCoverageOf(known),
	}, nil
}
