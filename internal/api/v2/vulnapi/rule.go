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
		UpdateTime: wire.Time(r.UpdateTime),
	}
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
	r.Enforce = p.GetMode() == pb.RuleMode_RULE_MODE_ENFORCE
	r.Exempt = wire.Convert(p.GetExemptUids(), func(s string) resource.UID { return resource.UID(s) })
	return nil
}

func (s *server) CreateRule(ctx context.Context, r *pb.CreateRuleRequest) (*pb.Rule, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetRule(), readRule, s.Policy.CreateRule, ruleOf)
}

func (s *server) GetRule(ctx context.Context, r *pb.GetRuleRequest) (*pb.Rule, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Policy.GetRule, ruleOf)
}

func (s *server) UpdateRule(ctx context.Context, r *pb.UpdateRuleRequest) (*pb.Rule, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "rule", r.GetRule(), readRule, s.Policy.UpdateRule, ruleOf)
}

func (s *server) DeleteRule(ctx context.Context, r *pb.DeleteRuleRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Policy.DeleteRule)
}

func (s *server) ListRules(ctx context.Context, r *pb.ListRulesRequest) (*pb.ListRulesResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, s.Policy.ListRules, ruleOf)
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
	p := wire.PageOf(ctx, got.Page, func(p policy.RefusedPull) *pb.RefusedPull {
		return &pb.RefusedPull{RepoUid: string(p.Repo), Repo: p.Path, Digest: p.Digest, IdentityUid: string(p.Identity),
			Count: p.Count, LastTime: wire.Time(p.Last), Reason: p.Reason}
	})
	return &pb.CheckRuleResponse{
		Pulls: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
		PullCount: got.Pulls, ImageCount: got.Images, IdentityCount: got.Identities,
	}, nil
}
