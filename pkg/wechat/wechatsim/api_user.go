package wechatsim

// userPage is one page of user/get. Past the end there is no data member.
type userPage struct {
	Total      int         `json:"total"`
	Count      int         `json:"count"`
	Data       *openIDList `json:"data,omitempty"`
	NextOpenID string      `json:"next_openid"`
}

type openIDList struct {
	OpenID []string `json:"openid"`
}

func userGet(c *call) (any, *apiError) {
	total, ids, known := c.acct.page(c.query.Get("next_openid"), c.sim.cfg.Limits.UserPage)
	if !known {
		return nil, refusal(errInvalidOpenID)
	}
	p := userPage{Total: total, Count: len(ids)}
	if len(ids) > 0 {
		p.Data, p.NextOpenID = &openIDList{ids}, ids[len(ids)-1]
	}
	return p, nil
}

// subscriber is user/info of a follower. Names and pictures have been empty
// since the end of 2021.
type subscriber struct {
	Subscribe      int    `json:"subscribe"`
	OpenID         string `json:"openid"`
	Nickname       string `json:"nickname"`
	Sex            int    `json:"sex"`
	Language       string `json:"language"`
	City           string `json:"city"`
	Province       string `json:"province"`
	Country        string `json:"country"`
	HeadImgURL     string `json:"headimgurl"`
	SubscribeTime  int64  `json:"subscribe_time"`
	Remark         string `json:"remark"`
	GroupID        int    `json:"groupid"`
	TagIDList      []int  `json:"tagid_list"`
	SubscribeScene string `json:"subscribe_scene"`
	QRScene        int    `json:"qr_scene"`
	QRSceneStr     string `json:"qr_scene_str"`
}

// stranger is user/info of somebody who does not follow.
type stranger struct {
	Subscribe int    `json:"subscribe"`
	OpenID    string `json:"openid"`
}

func (a *account) info(openid string) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.followers[openid]
	switch {
	case f == nil:
		return nil, false
	case !f.subscribed:
		return stranger{0, openid}, true
	}
	return subscriber{
		Subscribe: 1, OpenID: openid, Language: "zh_CN", SubscribeTime: f.since.Unix(),
		TagIDList: []int{}, SubscribeScene: "ADD_SCENE_QR_CODE",
	}, true
}

func userInfo(c *call) (any, *apiError) {
	info, known := c.acct.info(c.query.Get("openid"))
	if !known {
		return nil, refusal(errInvalidOpenID)
	}
	return info, nil
}

type userInfoList struct {
	List []any `json:"user_info_list"`
}

func userBatch(c *call) (any, *apiError) {
	var q struct {
		UserList []struct {
			OpenID string `json:"openid"`
		} `json:"user_list"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if len(q.UserList) == 0 || len(q.UserList) > 100 {
		return nil, argument("user_list must hold 1 to 100 openids")
	}
	answer := userInfoList{List: []any{}}
	for _, u := range q.UserList {
		info, known := c.acct.info(u.OpenID)
		if !known {
			return nil, refusal(errInvalidOpenID)
		}
		answer.List = append(answer.List, info)
	}
	return answer, nil
}
