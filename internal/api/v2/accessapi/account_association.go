package accessapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// AssociationOf converts an association to a message.
func AssociationOf(a resource.AccountAssociation) *pb.AccountAssociation {
	p := &pb.AccountAssociation{
		Uid: string(a.UID), Name: a.Name, Description: a.Description, Github: githubOf(a.GitHub),
		CreateTime: wire.Time(a.CreateTime), UpdateTime: wire.Time(a.UpdateTime),
	}
	if a.Amazon != nil {
		p.Amazon = &pb.AccountAssociation_Amazon{Account: a.Amazon.Account}
	}
	if a.Google != nil {
		p.Google = &pb.AccountAssociation_Google{ProjectId: a.Google.ProjectID, ProjectNumber: a.Google.ProjectNumber}
	}
	if a.Azure != nil {
		p.Azure = &pb.AccountAssociation_Azure{TenantId: a.Azure.TenantID, ClientIds: a.Azure.ClientIDs}
	}
	if a.HasBindings {
		b := &pb.AccountAssociation_ServiceBindings{ServiceBindings: map[string]string{}}
		for service, identity := range a.ServiceBindings {
			b.ServiceBindings[service] = string(identity)
		}
		wire.SetServiceBindings(p, b)
	}
	return p
}

func githubOf(g *resource.GitHubAccount) *pb.AccountAssociation_GitHub {
	if g == nil {
		return nil
	}
	p := &pb.AccountAssociation_GitHub{AppInstallations: map[int64]*pb.AccountAssociation_GitHubAppInstallations{}}
	convert := func(i resource.GitHubInstallation) *pb.AccountAssociation_GitHubInstallation {
		return &pb.AccountAssociation_GitHubInstallation{InstallationId: i.ID, Name: i.Name}
	}
	for app, installations := range g.Installations {
		p.AppInstallations[app] = &pb.AccountAssociation_GitHubAppInstallations{
			Installations: wire.Convert(installations, convert),
		}
	}
	return p
}

// ReadAssociation copies the fields that clients may set from p to a.
func ReadAssociation(p *pb.AccountAssociation, a *resource.AccountAssociation) error {
	*a = resource.AccountAssociation{
		UID: a.UID, Name: p.GetName(), Description: p.GetDescription(), GitHub: readGitHub(p.GetGithub()),
		CreateTime: a.CreateTime, UpdateTime: a.UpdateTime,
	}
	if m := p.GetAmazon(); m != nil {
		a.Amazon = &resource.AmazonAccount{Account: m.GetAccount()}
	}
	if m := p.GetGoogle(); m != nil {
		a.Google = &resource.GoogleProject{ProjectID: m.GetProjectId(), ProjectNumber: m.GetProjectNumber()}
	}
	if m := p.GetAzure(); m != nil {
		a.Azure = &resource.AzureTenant{TenantID: m.GetTenantId(), ClientIDs: m.GetClientIds()}
	}
	if m := wire.ServiceBindings(p); m != nil {
		a.HasBindings, a.ServiceBindings = true, map[string]resource.UID{}
		for service, identity := range m.GetServiceBindings() {
			a.ServiceBindings[service] = resource.UID(identity)
		}
	}
	return nil
}

func readGitHub(p *pb.AccountAssociation_GitHub) *resource.GitHubAccount {
	if p == nil {
		return nil
	}
	g := &resource.GitHubAccount{Installations: map[int64][]resource.GitHubInstallation{}}
	for app, m := range p.GetAppInstallations() {
		g.Installations[app] = wire.Convert(m.GetInstallations(),
			func(i *pb.AccountAssociation_GitHubInstallation) resource.GitHubInstallation {
				return resource.GitHubInstallation{ID: i.GetInstallationId(), Name: i.GetName()}
			})
	}
	return g
}

func (s *server) CreateAccountAssociation(
	ctx context.Context, r *pb.CreateAccountAssociationRequest,
) (*pb.AccountAssociation, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetAccountAssociation(), ReadAssociation,
		s.IAM.CreateAssociation, AssociationOf)
}

func (s *server) GetAccountAssociation(
	ctx context.Context, r *pb.GetAccountAssociationRequest,
) (*pb.AccountAssociation, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetAssociation, AssociationOf)
}

func (s *server) UpdateAccountAssociation(
	ctx context.Context, r *pb.UpdateAccountAssociationRequest,
) (*pb.AccountAssociation, error) {
	return wire.Update(ctx, r.GetUpdateMask(), "account_association", r.GetAccountAssociation(), ReadAssociation,
		s.IAM.UpdateAssociation, AssociationOf)
}

func (s *server) DeleteAccountAssociation(
	ctx context.Context, r *pb.DeleteAccountAssociationRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteAssociation)
}

func (s *server) ListAccountAssociations(
	ctx context.Context, r *pb.ListAccountAssociationsRequest,
) (*pb.ListAccountAssociationsResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r),
		s.IAM.ListAssociations, AssociationOf)
	return &pb.ListAccountAssociationsResponse{
		AccountAssociations: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) CheckAccountAssociation(
	ctx context.Context, r *pb.CheckAccountAssociationRequest,
) (*pb.CheckAccountAssociationResponse, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	got, err := s.IAM.CheckAssociation(ctx, uid, resource.ProviderType(r.GetProviderType()), s.STS.TryAccount)
	answer := pb.CheckStatus_CHECK_STATUS_NOT_READY
	if got.Ready {
		answer = pb.CheckStatus_CHECK_STATUS_READY
	}
	return &pb.CheckAccountAssociationResponse{Status: answer, Reason: got.Reason, Message: got.Message}, err
}
