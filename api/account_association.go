package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/sts"
)

type accountAssociations struct {
	iampb.UnsafeAccountAssociationsServiceServer
	iam *iam.Service
	sts *sts.Service
}

func associationOf(a resource.AccountAssociation) *iampb.AccountAssociation {
	p := &iampb.AccountAssociation{
		Uid: string(a.UID), Name: a.Name, Description: a.Description, Github: githubOf(a.GitHub),
		CreateTime: timeOf(a.CreateTime), UpdateTime: timeOf(a.UpdateTime),
	}
	if a.Amazon != nil {
		p.Amazon = &iampb.AccountAssociation_Amazon{Account: a.Amazon.Account}
	}
	if a.Google != nil {
		p.Google = &iampb.AccountAssociation_Google{ProjectId: a.Google.ProjectID, ProjectNumber: a.Google.ProjectNumber}
	}
	if a.Azure != nil {
		p.Azure = &iampb.AccountAssociation_Azure{TenantId: a.Azure.TenantID, ClientIds: a.Azure.ClientIDs}
	}
	if a.HasBindings {
		b := &iampb.AccountAssociation_ServiceBindings{ServiceBindings: map[string]string{}}
		for service, identity := range a.ServiceBindings {
			b.ServiceBindings[service] = string(identity)
		}
		setServiceBindings(p, b)
	}
	return p
}

func githubOf(g *resource.GitHubAccount) *iampb.AccountAssociation_GitHub {
	if g == nil {
		return nil
	}
	p := &iampb.AccountAssociation_GitHub{AppInstallations: map[int64]*iampb.AccountAssociation_GitHubAppInstallations{}}
	for app, all := range g.Installations {
		p.AppInstallations[app] = &iampb.AccountAssociation_GitHubAppInstallations{
			Installations: convert(all, func(i resource.GitHubInstallation) *iampb.AccountAssociation_GitHubInstallation {
				return &iampb.AccountAssociation_GitHubInstallation{InstallationId: i.ID, Name: i.Name}
			}),
		}
	}
	return p
}

// readAssociation reads into a what clients may set.
func readAssociation(p *iampb.AccountAssociation, a *resource.AccountAssociation) {
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
	if m := serviceBindings(p); m != nil {
		a.HasBindings, a.ServiceBindings = true, map[string]resource.UID{}
		for service, identity := range m.GetServiceBindings() {
			a.ServiceBindings[service] = resource.UID(identity)
		}
	}
}

func readGitHub(p *iampb.AccountAssociation_GitHub) *resource.GitHubAccount {
	if p == nil {
		return nil
	}
	g := &resource.GitHubAccount{Installations: map[int64][]resource.GitHubInstallation{}}
	for app, m := range p.GetAppInstallations() {
		g.Installations[app] = convert(m.GetInstallations(), func(i *iampb.AccountAssociation_GitHubInstallation) resource.GitHubInstallation {
			return resource.GitHubInstallation{ID: i.GetInstallationId(), Name: i.GetName()}
		})
	}
	return g
}

// CreateAccountAssociation is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) CreateAccountAssociation(ctx context.Context, r *iampb.CreateAccountAssociationRequest) (*iampb.AccountAssociation, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var a resource.AccountAssociation
	readAssociation(r.GetAccountAssociation(), &a)
	a, err = s.iam.CreateAssociation(ctx, parent, a)
	if err != nil {
		return nil, err
	}
	return associationOf(a), nil
}

// GetAccountAssociation is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) GetAccountAssociation(ctx context.Context, r *iampb.GetAccountAssociationRequest) (*iampb.AccountAssociation, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	a, err := s.iam.GetAssociation(ctx, uid)
	if err != nil {
		return nil, err
	}
	return associationOf(a), nil
}

// UpdateAccountAssociation is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) UpdateAccountAssociation(ctx context.Context, r *iampb.UpdateAccountAssociationRequest) (*iampb.AccountAssociation, error) {
	if r.GetAccountAssociation() == nil {
		return nil, fault.Field("account_association", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetAccountAssociation().GetUid())
	if err != nil {
		return nil, err
	}
	a, err := s.iam.UpdateAssociation(ctx, uid, func(a *resource.AccountAssociation) error {
		p := associationOf(*a)
		if err := apply(r.GetUpdateMask(), r.GetAccountAssociation(), p); err != nil {
			return err
		}
		readAssociation(p, a)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return associationOf(a), nil
}

// DeleteAccountAssociation is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) DeleteAccountAssociation(ctx context.Context, r *iampb.DeleteAccountAssociationRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteAssociation(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListAccountAssociations is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) ListAccountAssociations(ctx context.Context, r *iampb.ListAccountAssociationsRequest) (*iampb.ListAccountAssociationsResponse, error) {
	p, err := s.iam.ListAssociations(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListAccountAssociationsResponse{
		AccountAssociations: convert(p.Items, associationOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// CheckAccountAssociation is of iampb.AccountAssociationsServiceServer.
func (s accountAssociations) CheckAccountAssociation(ctx context.Context, r *iampb.CheckAccountAssociationRequest) (*iampb.CheckAccountAssociationResponse, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	got, err := s.iam.CheckAssociation(ctx, uid, resource.ProviderType(r.GetProviderType()), s.sts.TryAccount)
	if err != nil {
		return nil, err
	}
	answer := iampb.CheckStatus_CHECK_STATUS_NOT_READY
	if got.Ready {
		answer = iampb.CheckStatus_CHECK_STATUS_READY
	}
	return &iampb.CheckAccountAssociationResponse{Status: answer, Reason: got.Reason, Message: got.Message}, nil
}
