import pyarrow.parquet as pq, numpy as np, sys
from PIL import Image, ImageDraw
from pathlib import Path
sys.path.insert(0,'/work/main')
from pipelines.reporting.galleries import worst_queries
D='/tmp/w/f8k/evaluate/'+sys.argv[1]
I=Path('/work/shared/data/flickr8k/images')
t=pq.read_table(D+'/retrieval_queries.parquet')
print(t.column_names)
for way in ('t2i','i2t'):
    q=t.filter(np.array(t['direction'].to_pylist())==way)
    rows=[q.slice(i,1).to_pylist()[0] for i in worst_queries(q,10)]
    sheet=Image.new('RGB',(430,10*160),'white')
    for n,r in enumerate(rows):
        print(way,n,{k:(v if not isinstance(v,float) else round(v,3)) for k,v in r.items() if k!='direction'})
        names=[r['true_id'],r['first_id']] if way=='t2i' else [r['query_id'],r['first_id'].split('#')[0]]
        for c,name in enumerate(names):
            p=I/name.split('#')[0]
            im=Image.open(p).convert('RGB'); im.thumbnail((200,150)); sheet.paste(im,(5+c*210,n*160+5))
    sheet.save(f'/tmp/w/worst_{way}.png')
