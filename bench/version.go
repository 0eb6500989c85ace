package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// versionPage is how many groups the list that is compared has: one page.
const versionPage = 50

// versions compares the other versions of the API with v2beta1, at the same work:
// one group, a page of them, and a new one, as JSON and over gRPC.
func versions(ctx context.Context, b *bench, e engine, r *report) (err error) {
	v, err := b.side(ctx, e, "versions")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.service.stop()) }()
	for i := range versionPage {
		if _, err := v.post(ctx, "/iam/v2beta1/groups/"+string(v.folders[0]), fmt.Sprintf(`{"name": "g%d"}`, i)); err != nil {
			return err
		}
	}
	conn, err := dial(v.service.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	authorized := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.service.token)
	for _, c := range v.comparisons() {
		p, err := race(ctx, v.overJSON(c.ours), v.overJSON(c.base))
		if err != nil {
			return err
		}
		r.faster("versions: "+c.what+", JSON", p, 0.9)
		if p, err = race(authorized, overGRPC(conn, c.ours), overGRPC(conn, c.base)); err != nil {
			return err
		}
		r.faster("versions: "+c.what+", gRPC", p, 0.9)
	}
	return nil
}

// A work is one call, in both protocols. A new group has a name of its own.
type work struct {
	verb, path string
	method     string
	in         func() proto.Message
	out        func() proto.Message
}

// A comparison is a call of one version and the same in v2beta1.
type comparison struct {
	what       string
	ours, base work
}

// comparisons are what is compared. Version 1 finds a group by listing it.
func (v *side) comparisons() []comparison {
	folder := string(v.folders[0])
	whole := &commonpb.UIDPFilter{ChildrenOf: folder}
	get := work{http.MethodGet, "/iam/v2beta1/groups/" + folder, iampb.GroupsService_GetGroup_FullMethodName,
		func() proto.Message { return &iampb.GetGroupRequest{Uid: folder} }, func() proto.Message { return new(iampb.Group) }}
	list := work{http.MethodGet, fmt.Sprintf("/iam/v2beta1/groups?uidp.children_of=%s&page_size=%d", folder, versionPage), iampb.GroupsService_ListGroups_FullMethodName,
		func() proto.Message { return &iampb.ListGroupsRequest{Uidp: whole, PageSize: versionPage} }, func() proto.Message { return new(iampb.ListGroupsResponse) }}
	find := work{http.MethodGet, "/iam/v2beta1/groups?uidp.ids=" + folder, list.method,
		func() proto.Message {
			return &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{Ids: []string{folder}}}
		}, list.out}
	into := func() string { return string(v.folders[1+rand.IntN(len(v.folders)-1)]) }
	create := work{http.MethodPost, "/iam/v2beta1/groups/", iampb.GroupsService_CreateGroup_FullMethodName,
		func() proto.Message {
			return &iampb.CreateGroupRequest{Parent: into(), Group: &iampb.Group{Name: newName()}}
		}, get.out}
	listV1 := func(path string, f *iamv1pb.GroupFilter) work {
		return work{http.MethodGet, path, iamv1pb.Groups_List_FullMethodName, func() proto.Message { return f }, func() proto.Message { return new(iamv1pb.GroupList) }}
	}
	createV1 := work{http.MethodPost, "/iam/v1/groups/", iamv1pb.Groups_Create_FullMethodName,
		func() proto.Message {
			return &iamv1pb.CreateGroupRequest{Parent: into(), Group: &iamv1pb.Group{Name: newName()}}
		}, func() proto.Message { return new(iamv1pb.Group) }}
	return []comparison{
		{"one group, v1 / v2beta1 by the same filter", listV1("/iam/v1/groups?id="+folder, &iamv1pb.GroupFilter{Id: folder}), find},
		{"list of 50, v1 / v2beta1", listV1("/iam/v1/groups?uidp.children_of="+folder, &iamv1pb.GroupFilter{Uidp: whole}), list},
		{"create, v1 / v2beta1", createV1, create},
		{"one group, v2 / v2beta1", get.v2(), get},
		{"list of 50, v2 / v2beta1", list.v2(), list},
		{"create, v2 / v2beta1", create.v2(), create},
	}
}

// v2 is the same call of that version.
func (w work) v2() work {
	w.path, w.method = strings.Replace(w.path, "/v2beta1/", "/v2/", 1), strings.Replace(w.method, ".v2beta1.", ".v2.", 1)
	return w
}

func newName() string { return fmt.Sprintf("n-%016x", rand.Uint64()) }

// overJSON does a work over HTTP.
func (v *side) overJSON(w work) func(context.Context, int) error {
	address := "http://" + v.service.addr + w.path
	return func(ctx context.Context, _ int) error {
		to, body := address, ""
		if w.verb == http.MethodPost {
			to, body = to+string(v.folders[1+rand.IntN(len(v.folders)-1)]), `{"name": "`+newName()+`"}`
		}
		_, _, err := v.client.do(ctx, w.verb, to, body)
		return err
	}
}

// overGRPC does a work over a connection.
func overGRPC(conn *grpc.ClientConn, w work) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error { return conn.Invoke(ctx, w.method, w.in(), w.out()) }
}
