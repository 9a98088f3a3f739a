package intake

import (
	"net/http"

	"go.uber.org/zap"

	"tidegate/pkg/api"
	"tidegate/pkg/fault"
)

// accepted is the body of a 202.
type accepted struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// accept says that the push is durable and where its state can be read.
func accept(w http.ResponseWriter, id string) {
	w.Header().Set("Location", "/v1/messages/"+id)
	api.WriteJSON(w, http.StatusAccepted, accepted{ID: id, State: "queued"})
}

func (in *Intake) refuse(w http.ResponseWriter, err error) {
	if fault.KindOf(err) == fault.Internal {
		in.d.Log.Error("push not accepted", zap.Error(err))
	}
	api.WriteProblem(w, err)
}
